"""The process that keeps PostgreSQL: it starts it, starts it again when it was killed, and stops it with its owner.

It holds the other end of a pipe, so it notices the end of its owner whatever ended it. Signals do not end it: a
terminal or a service manager sends them to all processes at once, and the database is the last to go.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import psutil

from smart_fork.errors import SmartForkError, joined
from smart_fork.teamserver.cluster import Account, Cluster, Programs

_AGAIN_SECONDS = 1.0

log = logging.getLogger(__name__)


class Keeper:
    """One database, until `let_go`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._gone = threading.Event()

    def keep(self) -> int:
        """Start it, and see from now on that it runs; the number of its process."""
        process = self._cluster.start()
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        return int(process.pid)

    def let_go(self) -> None:
        """Stop it for good."""
        self._gone.set()
        with self._lock:  # not while it is being started again
            self._cluster.stop()

    def _watch(self, process: psutil.Process) -> None:
        while True:
            process.wait()
            again = None
            while again is None:
                with self._lock:
                    if self._gone.is_set():
                        return
                    again = self._again()
                if again is None:
                    self._gone.wait(_AGAIN_SECONDS)
            process = again

    def _again(self) -> psutil.Process | None:
        try:
            return self._cluster.start()
        except SmartForkError as error:
            log.warning("%s", joined(error.message, error.hint))
            return None


def described(cluster: Cluster) -> str:
    """What `cluster_of` makes the same one of, in another process."""
    account, programs = cluster.account, cluster.programs
    return json.dumps(
        {
            "folder": str(cluster.folder),
            "account": [account.uid, account.gid, account.name],
            "programs": [str(programs.folder), programs.major],
            "settings": dict(cluster.settings),
        }
    )


def cluster_of(description: str) -> Cluster:
    """The one that was `described`."""
    told: dict[str, Any] = json.loads(description)
    folder, major = told["programs"]
    return Cluster(Path(told["folder"]), Account(*told["account"]), Programs(Path(folder), major), told["settings"])


def main() -> None:
    """Keep the database that the argument describes until standard input ends; the answer is one line of JSON."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    keeper = Keeper(cluster_of(sys.argv[1]))
    try:
        answer: dict[str, Any] = {"pid": keeper.keep()}
    except SmartForkError as error:
        answer = {"error": error.message, "hint": error.hint}
    try:
        os.write(1, json.dumps(answer).encode() + b"\n")
        while os.read(0, 4096):
            pass
    except OSError:
        pass  # the owner is gone, which is what is waited for
    keeper.let_go()


if __name__ == "__main__":
    main()
