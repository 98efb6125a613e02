"""The embedding model, loaded in a thread while other work goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from indexer.embedder import Embedder, ModelUnavailableError
from indexer.model_notice import loading
from indexer.models import DefaultEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: After so long it is tried again to load a model that could not be loaded: somebody may have mended it.
AGAIN_SECONDS = 60.0
#: Texts embedded before another thread gets its turn: a question does not wait for all that is being indexed.
TURN = 32


class BackgroundModel:
    """An `Embedder` whose model is loaded in the background. `patience` seconds after its start nobody waits."""

    def __init__(self, embedder: Embedder, patience: float) -> None:
        self._embedder = embedder
        self._patience = patience
        self._deadline = 0.0
        self._ready = threading.Event()
        self._starting = threading.Lock()
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._again_at = 0.0
        self._closed = False

    @property
    def model(self) -> str:
        """As `Embedder.model`."""
        return self._embedder.model

    @property
    def dimensions(self) -> int:
        """As `Embedder.dimensions`."""
        self._wait()
        return self._embedder.dimensions

    @property
    def state(self) -> Literal["ready", "loading", "absent"]:
        """Whether it is loaded by now, or cannot be."""
        if not self._ready.is_set():
            return "loading"
        return "ready" if self._error is None else "absent"

    def start(self) -> None:
        """Begin to load, once; anew where that has failed a while ago."""
        with self._starting:
            if self._error is not None and time.monotonic() >= self._again_at:
                self._error, self._thread = None, None
                self._ready.clear()
            if self._thread is None:
                self._deadline = time.monotonic() + self._patience
                self._thread = threading.Thread(target=self._load, name="load model", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Embed no more, and end what is being embedded just now."""
        self._closed = True
        if isinstance(self._embedder, DefaultEmbedder):
            self._embedder.close()

    def finish(self) -> None:
        """Wait until it is loaded, or cannot be: for whoever has time."""
        self.start()
        self._ready.wait()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As `Embedder.embed`.

        Raises:
            ModelUnavailableError: it is still being loaded, or cannot be.
        """
        import numpy as np

        self._wait()
        if isinstance(self._embedder, DefaultEmbedder) and self._embedder.is_light(len(texts)):
            return self._embedder.embed(texts)  # it has an engine of its own for questions
        parts = []
        for first in range(0, len(texts), TURN):
            if self._closed:
                raise ModelUnavailableError("the process is ending")
            with self._turn:  # one at a time: two threads in the model are slower than one after the other
                parts.append(self._embedder.embed(texts[first : first + TURN]))
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def _wait(self) -> None:
        self.start()
        if not self._ready.is_set():
            with loading():
                self._ready.wait(max(0.0, self._deadline - time.monotonic()))
        if not self._ready.is_set():
            raise ModelUnavailableError("the embedding model is still loading; ask again in a few seconds")
        if (error := self._error) is not None:
            raise ModelUnavailableError(str(error)) from error

    def _load(self) -> None:
        try:
            self._embedder.embed(["warm"])
        except Exception as error:  # noqa: BLE001 - told to whoever asks
            self._error, self._again_at = error, time.monotonic() + AGAIN_SECONDS
        self._ready.set()
