"""Reading of many logs by several processes, while one process writes the results into the index.

Reading takes most of the time of a first run. The writing process reads a log itself when no reader has a result ready,
so that no processor is idle. A reader process costs time and memory, so it is started only for many logs.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import fields
from operator import attrgetter
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from indexer.locks import processors, step_back
from indexer.transcripts.base import Agents, Checkpoint, LogFile, ReadResult
from indexer.transcripts.line_hashes import hashing_lines, key_in_use
from indexer.transcripts.model import ToolCall, ToolResult, Turn

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Total size of logs from which a reader process is worth its start. Fewer bytes are read while it starts.
MIN_BYTES = 48 << 20
#: Maximum number of reader processes. Each takes as much memory as the process that asks.
MAX_READERS = 2
#: Number of logs that wait at a reader process, so that it always has one to read.
_MAX_WAITING_LOGS = 2

log = logging.getLogger(__name__)


def read_ahead(
    agents: Agents,
    files: Sequence[LogFile],
    checkpoint_of: Callable[[LogFile], Checkpoint | None],
    readers: int | None = None,
) -> Generator[tuple[LogFile, ReadResult | None], None, None]:
    """Yield each of `files` once, nearly in order, with the result of a reader process.

    The result is `None` if the caller must read the log itself: no reader was free, or no reader could read the log.
    `checkpoint_of` returns where the last reading of a log ended. `readers` is the number of processes.
    """
    left = deque(files)
    at_work = [one for _ in range(_wanted(files) if readers is None else readers) if (one := _Reader.start(agents))]
    try:
        while left or at_work:
            for reader in at_work:
                while left and reader.takes():
                    reader.ask(left[0], checkpoint_of(left.popleft()))
            for reader in [one for one in at_work if not one.asked]:
                at_work.remove(reader)
                reader.close()
            ready = _ready(at_work, None if not left else 0.0) if at_work else []
            if left and not ready:
                yield left.popleft(), None
            for reader in ready:
                if answer := reader.answer():
                    yield answer
                else:  # it has died: perhaps by one of them
                    left.extendleft(reversed(reader.asked))
                    at_work.remove(reader)
                    reader.close()
    finally:
        for reader in at_work:
            reader.close()


def _wanted(files: Sequence[LogFile]) -> int:
    if len(files) < 2 or sum(file.size for file in files) < MIN_BYTES:
        return 0
    return min(processors() - 1, MAX_READERS)


def _ready(readers: Sequence[_Reader], seconds: float | None) -> list[_Reader]:
    """Wait until a reader has a result, or `seconds` have passed. Return the readers that have a result."""
    from multiprocessing.connection import wait

    lines = wait([reader.line for reader in readers], seconds)
    return [reader for reader in readers if reader.line in lines]


class _Reader:
    """A process that reads logs one after the other. It ends when its connection to the asking process is closed."""

    def __init__(self, line: Connection, process: subprocess.Popen[bytes]) -> None:
        self.line = line
        self.asked: deque[LogFile] = deque()
        self._process = process

    @classmethod
    def start(cls, agents: Agents) -> _Reader | None:
        """Start a reader process for logs of `agents`. Return `None` if no process can be started."""
        from multiprocessing.connection import Pipe  # no process, no line to it: most runs are small

        ours, its = Pipe()
        # Nothing is imported from the directory that we happen to be in: it is as isolated as this process.
        argv = [
            sys.executable,
            "-I" if sys.flags.isolated else "-P",
            "-m",
            "indexer.parallel_reading",
            str(its.fileno()),
        ]
        try:
            with its:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    pass_fds=[its.fileno()], start_new_session=True,  # Ctrl-C on a terminal is for us
                )  # fmt: skip
        except OSError as error:
            ours.close()
            log.info("logs are read by this process alone: %s", error)
            return None
        reader = cls(ours, process)
        reader.tell((agents, key_in_use()))
        return reader

    def takes(self) -> bool:
        return len(self.asked) < _MAX_WAITING_LOGS

    def ask(self, file: LogFile, checkpoint: Checkpoint | None) -> None:
        """Ask the process to read `file` from `checkpoint` on, where an earlier reading ended."""
        self.asked.append(file)
        self.tell((file, checkpoint))

    def tell(self, what: object) -> None:
        """Send `what` to the reader process. If the process has died, do nothing: `answer` reports that."""
        try:
            self.line.send(what)
        except OSError as error:
            log.info("a process that reads logs has ended: %s", error)

    def answer(self) -> tuple[LogFile, ReadResult | None] | None:
        """Return the next log with its result (`None` if unreadable), or `None` if the reader process has died."""
        try:
            result: ReadResult | None = self.line.recv()
        except (EOFError, OSError):
            return None
        return self.asked.popleft(), result

    def close(self) -> None:
        """Close the connection, so that the reader process ends."""
        self.line.close()
        threading.Thread(target=self._process.wait, name="reader", daemon=True).start()


def _send_as_call(kind: type[Any]) -> None:
    """Have objects of the dataclass `kind` pickled as a call with their fields, which takes half the usual time."""
    from multiprocessing.reduction import ForkingPickler

    values = attrgetter(*[one.name for one in fields(kind)])

    def call(value: object) -> tuple[type[Any], tuple[Any, ...]]:
        return kind, values(value)

    ForkingPickler.register(kind, call)


def _answer(line: Connection) -> None:
    """Read each log that is requested on `line`, and send the result. The first message names the agents."""
    agents: Agents
    agents, key = line.recv()
    asked: SimpleQueue[tuple[LogFile, Checkpoint | None]] = SimpleQueue()
    threading.Thread(target=_receive, args=(line, asked), daemon=True).start()
    while True:
        file, checkpoint = asked.get()
        try:
            with hashing_lines(key):
                result = agents[file.agent].read(file.path, checkpoint)
        except Exception:  # noqa: BLE001 - whoever asked reads it again, and sees why
            result = None
        line.send(result)


def _receive(line: Connection, asked: SimpleQueue[tuple[LogFile, Checkpoint | None]]) -> None:
    """Move requests from the connection into the queue `asked`, so that two processes never both wait to send."""
    try:
        while True:
            asked.put(line.recv())
    except (EOFError, OSError):
        os._exit(0)  # nobody waits for an answer any more


def main() -> None:
    """Run a reader process: ``python -m indexer.parallel_reading DESCRIPTOR``."""
    if sys.platform == "darwin":  # elsewhere it has the priority of the thread that has started it
        step_back()
    from multiprocessing.connection import Connection

    for kind in (Turn, ToolCall, ToolResult):
        _send_as_call(kind)
    _answer(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
