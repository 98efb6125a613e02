"""Which embedder is used: the one that is configured, or the default model in the lightest way that does the work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from indexer.embedding import DEFAULT_MODEL, Embedder, SentenceTransformerEmbedder
from indexer.light import DIMENSIONS, LightEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Fewer texts than this are embedded sooner than the frameworks are imported.
FEW_TEXTS = 24


def configured_embedder(*, stays: bool = False) -> Embedder:
    """An embedder of ``SMART_FORK_MODEL``, or of the default model. Nothing is loaded yet.

    `stays`: for a process that stays, which is not to keep what only many texts need.
    """
    name = os.environ.get("SMART_FORK_MODEL") or DEFAULT_MODEL
    return DefaultEmbedder(stays=stays) if name == DEFAULT_MODEL else SentenceTransformerEmbedder(name)


class DefaultEmbedder:
    """The default model: a question without the frameworks, at once; many texts with sentence-transformers, fast."""

    dimensions = DIMENSIONS

    def __init__(self, *, stays: bool = False) -> None:
        self._light = LightEmbedder()
        self._stays = stays
        self._heavy: Embedder | None = None

    @property
    def model(self) -> str:
        """As `Embedder.model`."""
        return self._light.model

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As `Embedder.embed`."""
        few = len(texts) < FEW_TEXTS and (self._stays or self._heavy is None)
        return self._light.embed(texts) if len(texts) == 1 or few else self._for_many().embed(texts)

    def _for_many(self) -> Embedder:
        if self._heavy is None and self._stays:
            from indexer.embedding_process import ProcessEmbedder  # it imports what only few processes need

            self._heavy = ProcessEmbedder()
        elif self._heavy is None:
            self._heavy = SentenceTransformerEmbedder(DEFAULT_MODEL)
        return self._heavy
