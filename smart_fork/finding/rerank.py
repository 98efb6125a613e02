"""A second look at the best results: a cross-encoder reads the intent together with each passage that answers it.

It tells an answer from mere likeness better than two vectors do, but reads every passage again for every question, so
only a few are given to it. Nothing is imported or loaded unless one is configured.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from indexer.embedder import ModelUnavailableError, has_frameworks, hush, load, without_frameworks
from indexer.model_notice import loading
from indexer.settings import RERANKER
from indexer.shapes import dataclass

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

log = logging.getLogger(__name__)

#: An intent and passages; for each of these how probably it answers, 0…1. Raises whatever keeps it from that.
Rerank = Callable[[str, Sequence[str]], Sequence[float]]

#: Results that are looked at again.
RERANKED = 20
#: What the reranker's word weighs beside all other evidence, of which it sees nothing, in log odds.
SHARE = 0.5
#: A score is never taken for surer than this, so that a reranker that is surer can overrule it.
SUREST = 1e-3


def configured_reranker() -> Rerank | None:
    """The reranker of ``SMART_FORK_RERANKER``, one for all questions of a process; `None` where that is not set."""
    name = RERANKER.text()
    return _reranker(name) if name else None


class CrossEncoderReranker:
    """A sentence-transformers cross-encoder on the CPU, loaded when it is first asked. Threads take turns."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loaded: CrossEncoder | ModelUnavailableError | None = None
        self._lock = threading.Lock()

    def __call__(self, intent: str, texts: Sequence[str]) -> list[float]:
        """As `Rerank`.

        Raises:
            ModelUnavailableError: it cannot be loaded, or gives no single score for a passage.
        """
        with self._lock:
            model = self._load()
            from torch.nn import Sigmoid

            # Some are saved to give probabilities and some to give logits; asked like this, all give probabilities.
            pairs = [(intent, text) for text in texts]
            scores = model.predict(pairs, activation_fn=Sigmoid(), show_progress_bar=False)
        if scores.shape != (len(texts),):
            raise ModelUnavailableError(f"{self._name} is not a reranker: it does not give one score for a passage")
        return [float(score) for score in scores]

    def _load(self) -> CrossEncoder:
        if self._loaded is None:
            hush()
            try:
                with loading():
                    self._loaded = _cross_encoder(self._name)
            except ModelUnavailableError as error:  # no later question waits for the same
                self._loaded = error
        if isinstance(self._loaded, ModelUnavailableError):
            raise self._loaded
        return self._loaded


def _cross_encoder(name: str) -> CrossEncoder:
    if not has_frameworks():
        raise without_frameworks("SMART_FORK_RERANKER", name)
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise ModelUnavailableError(f"sentence-transformers cannot be imported ({error})") from error
    model: CrossEncoder = load(CrossEncoder, name)
    if not _scores_pairs(model):
        raise ModelUnavailableError(f"{name} is not a reranker: it was not trained to score pairs of texts")
    return model


def _scores_pairs(model: CrossEncoder) -> bool:
    """An embedding model loads as well, with a head that gives random numbers, others each time."""
    architectures = (model.config and model.config.architectures) or ()
    return len(model) > 1 or not architectures or any("SequenceClassification" in name for name in architectures)


_reranker = cache(CrossEncoderReranker)


@dataclass(slots=True)
class SecondLook:
    """Results in a better order, if there is a reranker and it works; otherwise as they are, `error` saying why."""

    rerank: Rerank | None
    error: str = ""

    def at(self, intent: str, ranked: Sequence[tuple[int, float]], texts: Mapping[int, str]) -> list[tuple[int, float]]:
        """`ranked` as (session, score), best first; `texts` are the passages that answer, by session."""
        looked_at = [row for row, _ in ranked[:RERANKED] if texts.get(row)]
        if self.rerank is None or not looked_at:
            return list(ranked)
        try:
            chance = dict(zip(looked_at, self.rerank(intent, [texts[row] for row in looked_at]), strict=True))
            if not all(map(math.isfinite, chance.values())):
                raise ValueError("its scores are not finite numbers")  # noqa: TRY301 - handled as whatever else it can fail of
        except Exception as error:  # noqa: BLE001 - the model is the user's choice, and may fail in any way
            self.error = str(error) or type(error).__name__
            log.warning("not reranked: %s", self.error)
            return list(ranked)
        mixed = [(row, _mixed(score, chance[row])) for row, score in ranked if row in chance]
        mixed.sort(key=lambda one: -one[1])
        # What was not looked at stays behind what was.
        return mixed + [(row, min(score, mixed[-1][1])) for row, score in ranked if row not in chance]


def _mixed(score: float, chance: float) -> float:
    """Between two chances, on the scale on which evidence adds up: a little doubt of what is sure changes little."""
    return 1 / (1 + math.exp(-(1 - SHARE) * _log_odds(score, SUREST) - SHARE * _log_odds(chance, SUREST**2)))


def _log_odds(chance: float, surest: float) -> float:
    chance = min(1 - surest, max(surest, chance))
    return math.log(chance / (1 - chance))
