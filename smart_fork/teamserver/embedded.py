"""The embedded database as a resource: from `Embedded.__enter__` until its owner ends, however that may be."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Self

from smart_fork.errors import ForkRefused, ProgramFailed
from smart_fork.teamserver.cluster import APP, DATABASE, Cluster
from smart_fork.teamserver.keeper import described

#: The keeper of an owner that was killed needs so long at most until its database is stopped.
SECONDS_FOR_ANOTHER = 90.0
_LOOK_SECONDS = 0.05

log = logging.getLogger(__name__)


class Embedded:
    """Runs the database of `cluster` while its context lasts; one owner at a time.

    Two files are locked: one by the owner, the other by its keeper. So who comes after an owner that was killed waits
    until the keeper has stopped the database, and does not take over one that is about to end.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._own: int | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None

    def conninfo(self, user: str = APP, database: str = DATABASE) -> str:
        """Where to connect, for libpq."""
        return self.cluster.conninfo(user, database)

    @property
    def keeper(self) -> int | None:
        """The number of the keeper's process."""
        keeper = self._keeper
        return keeper.pid if keeper is not None else None

    def __enter__(self) -> Self:
        """Make the database if there is none, and start it, or take over one that is left.

        Raises:
            ForkRefused: Another server has the folder.
            Usage: The folder cannot be used.
            ProgramFailed: It could not be made or started.
        """
        self.cluster.try_programs()
        self.cluster.account.make(self.cluster.folder)
        self._own = self._locked("lock-owner", 0.0)
        try:
            self._keep(create=True)
        except BaseException:
            self._release()
            raise
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop it."""
        self._closing.set()
        with self._lock:
            self._end_keeper()
        if self._watcher is not None:
            self._watcher.join()
        self.cluster.stop()  # which has nothing to do unless the keeper was killed
        self._release()

    def _release(self) -> None:
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def _end_keeper(self) -> None:
        if self._keeper is not None:
            for pipe in (self._keeper.stdin, self._keeper.stdout):
                if pipe is not None:
                    pipe.close()
            self._keeper.wait()

    def _keep(self, *, create: bool) -> None:
        """Start a keeper. It inherits the lock, which ends with it."""
        keepers = self._locked("lock-keeper", SECONDS_FOR_ANOTHER)
        try:
            if create:
                self.cluster.create()
            self._keeper = subprocess.Popen(
                [sys.executable, "-P", "-m", "smart_fork.teamserver.keeper", described(self.cluster)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[keepers],
                start_new_session=True,
            )
        finally:
            os.close(keepers)
        assert self._keeper.stdout is not None  # noqa: S101 - a pipe was asked for
        line = self._keeper.stdout.readline()
        answer = json.loads(line) if line else {"error": "The keeper of PostgreSQL has ended.", "hint": "Try again"}
        if "error" in answer:
            self._end_keeper()
            raise ProgramFailed(answer["error"], answer["hint"])

    def _watch(self) -> None:
        """Start another keeper where one was killed: without any the database would outlive its owner."""
        while True:
            keeper = self._keeper
            if keeper is None:
                return
            keeper.wait()
            with self._lock:
                if self._closing.is_set():
                    return
                log.warning("the keeper of PostgreSQL was killed; another takes over")
                self._end_keeper()
                try:
                    self._keep(create=False)
                except (ProgramFailed, ForkRefused) as error:
                    log.exception("no keeper of PostgreSQL", extra={"hint": error.hint})
            if self._keeper is keeper:
                self._closing.wait(1.0)

    def _locked(self, name: str, seconds: float) -> int:
        path = self.cluster.folder / name
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    os.close(file)
                    raise ForkRefused(
                        f"Another team server uses {self.cluster.folder}.", "Stop that one, or name another folder."
                    ) from None
                time.sleep(_LOOK_SECONDS)
            else:
                return file
