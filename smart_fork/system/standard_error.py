"""A thread that forwards a server's standard error, so that a reader that stops reading never blocks the server."""

from __future__ import annotations

import os
import queue
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PIECE_BYTES = 1 << 16
#: The number of pieces that wait for the reader. Further output is dropped.
MAX_PIECES = 256
#: The time that the end waits for a slow reader.
LAST_SECONDS = 1.0


@contextmanager
def nonblocking_stderr() -> Iterator[None]:
    """Forward standard error from a thread while the block runs, so that a slow reader does not block this process.

    Output of programs started inside the block is forwarded, too. Output to a regular file needs no thread.
    """
    if sys.stderr is None or stat.S_ISREG(os.fstat(2).st_mode):
        yield
        return
    target = os.dup(2)
    source, ours = os.pipe()
    os.dup2(ours, 2)
    os.close(ours)
    waiting: queue.Queue[bytes] = queue.Queue(MAX_PIECES)
    threading.Thread(target=_take, args=(source, waiting), name="stderr-read", daemon=True).start()
    writer = threading.Thread(target=_pass_on, args=(waiting, target), name="stderr-write", daemon=True)
    writer.start()
    try:
        yield
    finally:
        os.dup2(target, 2)
        writer.join(LAST_SECONDS)


def _take(source: int, waiting: queue.Queue[bytes]) -> None:
    while piece := os.read(source, _PIECE_BYTES):
        with suppress(queue.Full):
            waiting.put_nowait(piece)
    os.close(source)
    waiting.put(b"")


def _pass_on(waiting: queue.Queue[bytes], target: int) -> None:
    while piece := waiting.get():
        with suppress(OSError):  # the reader is gone
            while piece:
                piece = piece[os.write(target, piece) :]
    os.close(target)
