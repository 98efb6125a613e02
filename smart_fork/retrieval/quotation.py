"""What is quoted of a passage: the sentence that matched, what follows it, and who said it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from indexer.chunks import LABELS
from indexer.embedder import Embedder
from indexer.masking import NOTHING, Masked
from smart_fork.retrieval.found import Candidate
from smart_fork.text.snippets import evidence, sentences, snippet, tidied

log = logging.getLogger(__name__)

Speaker = Literal["user", "assistant"]
#: How near texts are in meaning to what was asked.
Nearness = Callable[[Sequence[str]], Sequence[float]]
#: Hits of which the sentence is looked for that is nearest in meaning, and sentences of each: so few texts are embedded
#: without loading anything large.
_COMPARED, _SENTENCES = 2, 5


class Quotation(NamedTuple):
    """What somebody says in a passage, or what is shown of it; `said_by` is `None` where that is not known."""

    said_by: Speaker | None
    text: Masked


def quotations(hits: Sequence[Candidate], limit: int, nearness: Nearness | None) -> list[Quotation]:
    """What is shown of each hit, in at most `limit` characters.

    The sentence with the best evidence for the words that were asked; where no sentence of a passage has one of them,
    that which is nearest in meaning, if `nearness` can tell; else the first.
    """
    said = [_said(hit) for hit in hits]
    telling = [_most_telling(parts, hit.asked) for parts, hit in zip(said, hits, strict=True)]
    if nearness is not None:
        silent = [number for number, place in enumerate(telling) if place is None and said[number]][:_COMPARED]
        for number, place in zip(silent, _nearest([said[one] for one in silent], nearness), strict=True):
            telling[number] = place
    return [
        _quoted(parts, place or (0, 0), hit.asked, limit)
        for parts, place, hit in zip(said, telling, hits, strict=True)
    ]  # fmt: skip


def _said(hit: Candidate) -> list[Quotation]:
    """The passage by who speaks. What the agent did is told by it as well."""
    if hit.place is None:
        return [Quotation(None, shown)] if (shown := tidied(hit.text)) else []
    role = hit.place.role
    voices = hit.voices
    if voices is None:  # something was taken out of it: behind the prompt may be its answer
        first = hit.text.find("\n") + 1
        voices = ((first, None),) if role == "user" and first else ()
    starts: list[tuple[int, str | None]] = [(0, role), *voices, (len(hit.text), None)]
    parts = [
        Quotation(
            None if by is None else "user" if by == "user" else "assistant",
            tidied(hit.text[start:end].removeprefix(LABELS["user"] if by == "user" else "")),
        )
        for (start, by), (end, _) in pairwise(starts)
    ]
    return [part for part in parts if part.text]


def _most_telling(parts: Sequence[Quotation], words: Sequence[str]) -> tuple[int, int] | None:
    """Which part's which sentence has the best evidence, among equals the first."""
    found, most = None, 0.0
    for number, part in enumerate(parts):
        for place, (start, end) in enumerate(sentences(part.text)):
            if (one := evidence(part.text[start:end], words)) > most:
                found, most = (number, place), one
    return found


def _nearest(passages: Sequence[Sequence[Quotation]], nearness: Nearness) -> list[tuple[int, int] | None]:
    """Which part's which sentence of each passage is nearest in meaning, all compared at once."""
    candidates = [
        [(number, place, part.text[start:end])
         for number, part in enumerate(parts) for place, (start, end) in enumerate(sentences(part.text))][:_SENTENCES]
        for parts in passages
    ]  # fmt: skip
    near = iter(nearness([text for among in candidates for *_, text in among]) if any(candidates) else ())
    found: list[tuple[int, int] | None] = []
    for among in candidates:
        ranked = [(next(near), -order) for order in range(len(among))]
        found.append(among[-max(ranked)[1]][:2] if ranked else None)
    return found


def _quoted(parts: Sequence[Quotation], place: tuple[int, int], words: Sequence[str], limit: int) -> Quotation:
    number, sentence = place
    if number >= len(parts):
        return Quotation(None, NOTHING)
    return Quotation(parts[number].said_by, snippet(parts[number].text, words, limit, nearest=sentence))


def nearness(embedder: Embedder, asked: Callable[[], Sequence[bytes]]) -> Nearness:
    """To the nearest of the vectors that were asked for, by those of the sentences; so few need nothing heavy."""

    def near(texts: Sequence[str]) -> list[float]:
        from indexer.arrays import np

        try:
            given, vectors = asked(), embedder.embed(texts)
        except Exception as error:  # noqa: BLE001 - the model is the user's choice: then the first sentences are shown
            log.info("sentences are not compared: %s", error)
            return [0.0] * len(texts)
        phrasings = np.frombuffer(b"".join(given), np.float32).reshape(len(given), -1)
        return [float((phrasings @ one).max()) for one in vectors]

    return near
