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
from contextlib import nullcontext, suppress
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING

import orjson

from indexer.embedder import DEFAULT_MODEL, Embedder, ModelUnavailableError, SentenceTransformerEmbedder, loading
from indexer.locks import step_back

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: So long the process waits for more. Loading the model again takes some four seconds of one core.
IDLE_SECONDS = 30.0


class ProcessEmbedder:
    """An `Embedder` of the default model in another process, which is started when it is needed. Threads take turns.

    The process steps back behind everything else and takes one core, unless it is `waited_for`.
    """

    def __init__(self, idle: float = IDLE_SECONDS, *, waited_for: bool = False) -> None:
        self._idle, self._waited_for = idle, waited_for
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._lifeline: Connection | None = None
        self._closed = False
        self._has_loaded = False

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
                raise ModelUnavailableError("the embedding process died twice; is there enough memory?") from error

    def begin(self) -> None:
        """Start the process, which loads the model, and do not wait for it. What is wrong is seen when it is asked."""
        with self._lock, suppress(OSError):
            self._connect()

    def close(self) -> None:
        """End the process, whatever it is at. Whoever waits for it is told so."""
        self._closed = True
        if (lifeline := self._lifeline) is not None:
            lifeline.close()

    def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        from indexer.arrays import np

        if self._closed:
            raise ModelUnavailableError("the embedding process was ended")
        connection = self._connect()
        with nullcontext() if self._has_loaded else loading():
            connection.send_bytes(orjson.dumps(list(texts)))
            problem = connection.recv_bytes()
        self._has_loaded = True
        if problem:
            raise ModelUnavailableError(problem.decode("utf-8", "replace"))
        return np.frombuffer(connection.recv_bytes(), np.float32).reshape(len(texts), -1)

    def _connect(self) -> Connection:
        if self._connection is None:
            self._has_loaded = False
            self._connection, self._lifeline = _start(self._idle, *(["waited-for"] if self._waited_for else []))
            if self._closed:  # meanwhile
                self.close()
        return self._connection


def _start(idle: float, *more: str) -> tuple[Connection, Connection]:
    """A process that embeds, our end of the line to it, and what it lives by: when that is closed, it ends immediately.

    The system closes it when we die, however we do.
    """
    ours, its = Pipe()
    life, lifeline = Pipe(duplex=False)
    # As for a reader: as isolated as this process.
    argv = [sys.executable, "-I" if sys.flags.isolated else "-P", "-m", "indexer.embedding_process"]
    argv += [str(its.fileno()), str(life.fileno()), str(idle), *more]
    with its, life:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[its.fileno(), life.fileno()],
            start_new_session=True,  # Ctrl-C on a terminal is for us: we close the line
        )  # fmt: skip
    threading.Thread(target=process.wait, name="embedding process", daemon=True).start()
    return ours, lifeline


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


def _die_with(life: int) -> None:
    """End in the middle of whatever is embedded: nobody waits for it."""
    os.read(life, 1)
    os._exit(0)


def main() -> None:
    """The process: ``python -m indexer.embedding_process DESCRIPTOR LIFELINE SECONDS [waited-for]``."""
    descriptor, life, idle, *waited_for = sys.argv[1:]
    threading.Thread(target=_die_with, args=(int(life),), name="lifeline", daemon=True).start()
    if not waited_for:
        step_back()
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's, which is not imported yet
    embedder = SentenceTransformerEmbedder(DEFAULT_MODEL)
    with suppress(Exception):  # told to whoever asks
        embedder.embed(["is it there?"])
    answer(Connection(int(descriptor)), embedder, float(idle))
    os._exit(0)  # the model's libraries take their time to be taken down


if __name__ == "__main__":
    main()
