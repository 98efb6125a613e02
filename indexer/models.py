"""Which embedder is used: the one that is configured, or the default model in the lightest way that does the work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from indexer.embedding import DEFAULT_MODEL, Embedder, SentenceTransformerEmbedder
from indexer.light import DIMENSIONS, LightEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Fewer texts than this are embedded sooner than the frameworks are imported.
FEW_TEXTS = 32


def configured_embedder(*, stays: bool = False) -> Embedder:
    """An embedder of ``SMART_FORK_MODEL``, or of the default model. Nothing is loaded yet.

    `stays`: for a process that stays, which is not to keep what only many texts need.
    """
    name = os.environ.get("SMART_FORK_MODEL") or DEFAULT_MODEL
    return DefaultEmbedder(stays=stays) if name == DEFAULT_MODEL else SentenceTransformerEmbedder(name)


@runtime_checkable
class Beginning(Protocol):
    """What can load a model while its process does other work."""

    def begin(self) -> None:
        """There will be many texts soon. Returns at once."""
        ...


@runtime_checkable
class Closing(Protocol):
    """What can be ended while it works."""

    def close(self) -> None:
        """Work no more."""
        ...


class DefaultEmbedder:
    """The default model: a question without the frameworks, at once; many texts with sentence-transformers, fast."""

    dimensions = DIMENSIONS

    def __init__(self, *, stays: bool = False) -> None:
        self._light = LightEmbedder()
        self._apart = stays
        self._heavy: Embedder | None = None

    @property
    def model(self) -> str:
        """As `Embedder.model`."""
        return self._light.model

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As `Embedder.embed`."""
        return self._light.embed(texts) if self.is_light(len(texts)) else self._for_many().embed(texts)

    def is_light(self, count: int) -> bool:
        """Whether so many texts are embedded at once, beside whatever else is being embedded."""
        return count == 1 or (count < FEW_TEXTS and (self._apart or self._heavy is None))

    def begin(self) -> None:
        """As `Beginning.begin`: in another process, which a person waits for."""
        if self._heavy is None and not self._apart:
            from indexer.embedding_process import ProcessEmbedder

            self._apart, self._heavy = True, (process := ProcessEmbedder(waited_for=True))
            process.begin()

    def close(self) -> None:
        """End what embeds in another process."""
        if isinstance(self._heavy, Closing):
            self._heavy.close()

    def _for_many(self) -> Embedder:
        if self._heavy is None and self._apart:
            from indexer.embedding_process import ProcessEmbedder  # it imports what only few processes need

            self._heavy = ProcessEmbedder()
        elif self._heavy is None:
            self._heavy = SentenceTransformerEmbedder(DEFAULT_MODEL)
        return self._heavy
