"""An embedder shared by all searches of a process. It loads the model once, and limits checks for changed logs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Literal

from indexer.default_embedder import ClosableEmbedder, DefaultEmbedder
from indexer.embedder import Embedder, ModelUnavailableError, loading
from indexer.locks import LOCK_SECONDS, IndexBusyError
from indexer.transcripts.base import LogFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from indexer.background_indexer import BackgroundIndexer
    from indexer.transcripts.base import LogFile


#: Time after which a model that could not be loaded is tried again, because a person may have repaired it.
RETRY_SECONDS = 60.0
#: Texts embedded before another thread gets its turn, so that a search does not wait for all indexing.
TURN_TEXTS = 32
#: For this time, one look at all logs counts for all searches.
LOOK_SECONDS = 1.0


class SharedEmbedder:
    """An `Embedder` that loads its model in a thread. Searches wait for the model for at most `patience` seconds.

    If this process has a background indexer (`indexer`), a search reads changed logs for a moment only, and makes no
    vectors. While the indexer reads logs, a search reads none, so that it does not wait for the indexer's lock.
    """

    def __init__(
        self, embedder: Embedder, patience: float, indexer: BackgroundIndexer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.indexer = indexer
        self._embedder, self._patience, self._clock = embedder, patience, clock
        self._starting, self._turn, self._looking = threading.Lock(), threading.Lock(), threading.Lock()
        self._loaded: Future[None] | None = None
        self._deadline = self._again_at = 0.0
        self._looked_at = -math.inf
        self._closed = False

    @property
    def model(self) -> str:
        return self._embedder.model

    @property
    def dimensions(self) -> int:
        self._wait()
        return self._embedder.dimensions

    @property
    def state(self) -> Literal["ready", "loading", "absent"]:
        """Return the state of the model, "absent" if it cannot be loaded."""
        if self._loaded is None or not self._loaded.done():
            return "loading"
        return "absent" if self._loaded.exception() else "ready"

    def start(self) -> Future[None]:
        """Load the model in a thread, unless it is loading or loaded, or failed in the last minute."""
        with self._starting:
            loaded = self._loaded
            if loaded is None or (loaded.done() and loaded.exception() and self._clock() >= self._again_at):
                self._deadline = self._clock() + self._patience
                self._loaded = loaded = Future()
                threading.Thread(target=self._load, args=(loaded,), name="load model", daemon=True).start()
            return loaded

    def close(self) -> None:
        """Stop embedding, also in a running call."""
        self._closed = True
        if isinstance(self._embedder, ClosableEmbedder):
            self._embedder.close()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a unit vector for each text. This waits for the model, but not longer than `patience` allows."""
        import numpy as np

        self._wait()
        if isinstance(self._embedder, DefaultEmbedder) and self._embedder.is_light(len(texts)):
            return self._embedder.embed(texts)  # it has an engine of its own for questions
        parts = []
        for first in range(0, len(texts), TURN_TEXTS):
            if self._closed:
                raise ModelUnavailableError("the process is ending")
            with self._turn:  # two threads in the model are slower than one after the other
                parts.append(self._embedder.embed(texts[first : first + TURN_TEXTS]))
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def left(self, look: Callable[[], list[LogFile]]) -> list[LogFile]:
        """Call `look`, which reads changed logs, and return the logs that it leaves unread.

        For a second after `look` left none, return [] without a call. Raise `IndexBusyError` if another search is slow.
        """
        if not self._looking.acquire(timeout=LOCK_SECONDS):
            raise IndexBusyError("another search is updating the index")
        try:
            now = self._clock()
            if now - self._looked_at < LOOK_SECONDS:
                return []
            self._looked_at = -math.inf
            left = look()
            self._looked_at = -math.inf if left else now
            return left
        finally:
            self._looking.release()

    def _wait(self) -> None:
        loaded = self.start()
        if not loaded.done():
            with loading():
                wait([loaded], max(0.0, self._deadline - self._clock()))
        if not loaded.done():
            raise ModelUnavailableError("the embedding model is still loading; ask again in a few seconds")
        if error := loaded.exception():
            raise ModelUnavailableError(str(error)) from error

    def _load(self, loaded: Future[None]) -> None:
        try:
            self._embedder.embed(["warm"])
        except Exception as error:  # noqa: BLE001 - raised for whoever asks
            self._again_at = self._clock() + RETRY_SECONDS
            loaded.set_exception(error)
        else:
            loaded.set_result(None)
