"""Which embedder is used: the one that is configured, or the default model in the lightest way that does the work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from indexer.embedder import DEFAULT_MODEL, Embedder, ModelUnavailableError, SentenceTransformerEmbedder, has_frameworks
from indexer.light import DIMENSIONS, LightEmbedder
from indexer.priority import processors
from indexer.settings import MODEL

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

#: Fewer texts than this are embedded sooner than the frameworks are imported.
FEW_TEXTS = 32


def configured_embedder(*, background: bool = False) -> Embedder:
    """An embedder of ``SMART_FORK_MODEL``, or of the default model. Nothing is loaded yet.

    `background`: for a process that nobody waits for, or that stays: many texts get one core, and it does not keep what
    only they need.
    """
    name = MODEL.text() or DEFAULT_MODEL
    if name == DEFAULT_MODEL:
        return DefaultEmbedder(background=background)
    return SentenceTransformerEmbedder(name, threads=1 if background else None)


@runtime_checkable
class Beginning(Protocol):
    """What can load a model while its process does other work."""

    def begin(self) -> None:
        """There will be many texts soon. Returns immediately."""


@runtime_checkable
class Closing(Protocol):
    """What can be ended while it works."""

    def close(self) -> None:
        """Work no more."""


class DefaultEmbedder:
    """The default model: a question with onnxruntime, at once; many texts with sentence-transformers, which is faster
    on a GPU and where the processor has bfloat16. Where that is not installed, or fails, onnxruntime embeds them too.
    """

    dimensions = DIMENSIONS

    def __init__(self, *, background: bool = False) -> None:
        self._light = LightEmbedder(1 if background else processors())
        self._apart = background
        self._only_light = not has_frameworks()
        self._heavy: Embedder | None = None

    @property
    def model(self) -> str:
        """As `Embedder.model`."""
        return self._light.model

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As `Embedder.embed`."""
        if not self.is_light(len(texts)):
            try:
                return self._for_many().embed(texts)
            except ModelUnavailableError as error:
                if self._light.closed:
                    raise
                log.warning("onnxruntime embeds instead of sentence-transformers: %s", error)
                self._only_light = True
        return self._light.embed(texts)

    def is_light(self, count: int) -> bool:
        """Whether so many texts are embedded at once, beside whatever else is being embedded."""
        if count == 1 or self._only_light:
            return True
        return count < FEW_TEXTS and (self._apart or self._heavy is None)

    def begin(self) -> None:
        """As `Beginning.begin`: in another process, which a person waits for."""
        if self._heavy is None and not self._apart and not self._only_light:
            from indexer.embedding_process import ProcessEmbedder

            self._apart, self._heavy = True, (process := ProcessEmbedder(waited_for=True))
            process.begin()

    def close(self) -> None:
        """Embed no more, here or in another process."""
        self._light.close()
        if isinstance(self._heavy, Closing):
            self._heavy.close()

    def _for_many(self) -> Embedder:
        if self._heavy is None and self._apart:
            from indexer.embedding_process import ProcessEmbedder  # it imports what only few processes need

            self._heavy = ProcessEmbedder()
        elif self._heavy is None:
            self._heavy = SentenceTransformerEmbedder(DEFAULT_MODEL)
        return self._heavy
