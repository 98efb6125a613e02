"""The processes of a server: started, started again when one was killed, and let go together."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from smart_fork.errors import ProgramFailed, joined
from smart_fork.teamserver.child import GRACE_SECONDS, Task

_AGAIN_SECONDS = 1.0
#: So much longer than they may take, ends are waited for.
_SECONDS_MORE = 5.0

log = logging.getLogger(__name__)


class Family:
    """A process for each task, while its context lasts."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._watchers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        """Start them all; when this returns they answer.

        Raises:
            ProgramFailed: One could not be started.
        """
        try:
            for number in range(len(self._tasks)):
                self._processes[number] = self._started(self._tasks[number])
            for process in self._processes.values():
                _check(process)
        except BaseException:
            self.close()
            raise
        for number in range(len(self._tasks)):
            watcher = threading.Thread(target=self._watch, args=(number,), daemon=True)
            watcher.start()
            self._watchers.append(watcher)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let them end what they are doing, and see that they end."""
        self._closing.set()
        with self._lock:
            processes = list(self._processes.values())
        for process in processes:
            _let_go(process)
        for process in processes:
            try:
                process.wait(GRACE_SECONDS + _SECONDS_MORE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for watcher in self._watchers:
            watcher.join()
        for process in processes:
            if process.stdout is not None:
                process.stdout.close()

    @property
    def numbers(self) -> dict[str, list[int]]:
        """The processes' numbers, by what they are for."""
        found: dict[str, list[int]] = {}
        for number, process in sorted(self._processes.items()):
            found.setdefault(self._tasks[number].kind, []).append(process.pid)
        return found

    def _started(self, task: Task) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "smart_fork.teamserver.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=task.sockets,
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        try:
            process.stdin.write(task.written())
            process.stdin.flush()
        except BrokenPipeError:
            pass  # `_check` says so
        return process

    def _watch(self, number: int) -> None:
        while True:
            process = self._processes[number]
            process.wait()
            while process.poll() is not None:
                if self._closing.wait(_AGAIN_SECONDS):
                    return
                log.warning("a process of the server has ended (%s); another takes over", process.returncode)
                with self._lock:
                    if self._closing.is_set():
                        return
                    _let_go(process)
                    if process.stdout is not None:
                        process.stdout.close()
                    process = self._processes[number] = self._started(self._tasks[number])
                try:
                    _check(process)
                except ProgramFailed as error:
                    log.warning("%s", joined(error.message, error.hint))
                    process.wait()


def _check(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process says that it is ready.

    Raises:
        ProgramFailed: It says something else, or has ended.
    """
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    line = process.stdout.readline()
    answer = json.loads(line) if line else {"error": "A process of the server has ended.", "hint": "Its log says why."}
    if "error" in answer:
        raise ProgramFailed(answer["error"], answer["hint"])


def _let_go(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()
