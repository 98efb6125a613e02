"""Commands in processes that are killed at a chosen moment: at a request, a file replacement, or a commit of the
state.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import apsw

from smart_fork.team.client import Client
from tests.smart_fork.team.server.machines import TeamMachine


def killed(machine: TeamMachine, moment: int, *words: str) -> bool:
    """Run a command and kill it at a moment, counted from 1. Return False if it ended before.

    Moments are: before a request is sent, after its answer, before a file or link is replaced, and before a
    transaction of the state's database is committed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads of the server are not needed there
        child = os.fork()
    if not child:
        try:
            _kill_at(moment, str(machine.home))
            machine.do(*words)
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _kill_at(last: int, home: str) -> None:
    seen = 0

    def passed() -> None:
        nonlocal seen
        seen += 1
        if seen == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def event(name: str, given: tuple[Any, ...]) -> None:
        if name in ("os.rename", "os.link") and str(given[0]).startswith(home):
            passed()

    def committed() -> bool:
        passed()
        return False

    def watch(db: apsw.Connection) -> None:
        if Path(db.filename).name == "state.db":
            db.set_commit_hook(committed)

    once = Client._once

    def asked(self: Client, *given: Any) -> bytes:
        passed()
        said = once(self, *given)
        passed()
        return said

    Client._once = asked  # type: ignore[method-assign] - in this process, which ends soon
    sys.addaudithook(event)
    apsw.connection_hooks.append(watch)
