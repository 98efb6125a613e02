"""Many texts -> vectors, in a process of its own that ends when nobody has asked it for a while.

PyTorch takes most of a gigabyte for as long as a process lives, and more with every batch of another shape. A process
that stays for weeks would keep that for the few seconds a day in which there is much to embed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING

import orjson

from indexer.embedding import DEFAULT_MODEL, Embedder, ModelUnavailableError, SentenceTransformerEmbedder
from indexer.priority import step_back

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: So long the process waits for more. Loading the model again takes some four seconds of one core.
IDLE_SECONDS = 30.0


class ProcessEmbedder:
    """An `Embedder` of the default model in another process, which is started when it is needed. Threads take turns."""

    def __init__(self, idle: float = IDLE_SECONDS) -> None:
        self._idle = idle
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    @property
    def model(self) -> str:
        """As `Embedder.model`."""
        return SentenceTransformerEmbedder(DEFAULT_MODEL).model

    @property
    def dimensions(self) -> int:
        """As `Embedder.dimensions`."""
        return int(self.embed(["how long?"]).shape[1])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As `Embedder.embed`."""
        with self._lock:
            try:
                return self._ask(texts)
            except (EOFError, OSError):
                self._connection = None  # it had nothing to do and has ended, or somebody has ended it
            try:
                return self._ask(texts)
            except (EOFError, OSError) as error:
                self._connection = None
                raise ModelUnavailableError(
                    "the process that embeds has died twice; is there enough memory?"
                ) from error

    def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        from indexer.arrays import np

        if self._connection is None:
            self._connection = _start(self._idle)
        self._connection.send_bytes(orjson.dumps(list(texts)))
        if problem := self._connection.recv_bytes():
            raise ModelUnavailableError(problem.decode("utf-8", "replace"))
        return np.frombuffer(self._connection.recv_bytes(), np.float32).reshape(len(texts), -1)


def _start(idle: float) -> Connection:
    """A process that embeds, and our end of the line to it: when that is closed, the process ends."""
    ours, its = Pipe()
    # -P: nothing is imported from the directory that we happen to be in.
    argv = [sys.executable, "-P", "-m", "indexer.embedding_process", str(its.fileno()), str(idle)]
    with its:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[its.fileno()],
            start_new_session=True,  # Ctrl-C on a terminal is for us: we close the line
        )  # fmt: skip
    threading.Thread(target=process.wait, name="embedding process", daemon=True).start()
    return ours


def answer(connection: Connection, embedder: Embedder, idle: float) -> None:
    """Embed what is asked for, until nobody has asked for `idle` seconds or the other end has been closed.

    Each answer is what went wrong, empty where nothing did, and then the vectors as they lie in memory.
    """
    try:
        while connection.poll(idle):
            texts = orjson.loads(connection.recv_bytes())
            try:
                vectors = embedder.embed(texts)
            except Exception as error:  # noqa: BLE001 - told to whoever asks
                connection.send_bytes((str(error) or type(error).__name__).encode("utf-8", "replace"))
                continue
            connection.send_bytes(b"")
            connection.send_bytes(vectors.tobytes())
    except (EOFError, OSError):  # nobody waits for an answer any more
        return


def main() -> None:
    """The process: ``python -m indexer.embedding_process DESCRIPTOR SECONDS``."""
    descriptor, idle = sys.argv[1:]
    step_back()
    answer(Connection(int(descriptor)), SentenceTransformerEmbedder(DEFAULT_MODEL), float(idle))
    os._exit(0)  # the model's libraries take their time to be taken down


if __name__ == "__main__":
    main()
