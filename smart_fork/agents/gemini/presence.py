"""Where Gemini CLI runs, and which of its sessions calls.

It notes nothing, but began a session's log shortly after it was started itself. Nothing that it tells its servers says
which session calls, and so the process that has started us: it was told the session that it goes on with, or began one
when it started. Where several are begun since, that one counts which was written last: who calls has just been asked
something.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import psutil

from indexer.transcripts.state import utc
from smart_fork.agents.agent import Calls, ClientCall
from smart_fork.agents.gemini.home import BEGINS, CHATS, project_for, root_of
from smart_fork.agents.gemini.log import GeminiAdapter, id_of, start_of
from smart_fork.agents.starter import Presence
from smart_fork.system.processes import every_process

#: The options that name the session of a process.
_NAMING = ("--resume", "-r", "--session-id")
#: How many logs of the project are looked at, the newest first.
_LOOKED_AT = 8


class GeminiCalls(Calls):
    """See `Calls`."""

    def session_id(self, call: ClientCall) -> str | None:
        """See `Calls.session_id`."""
        if call.project is None or call.environment is not os.environ:
            return None
        try:
            above = psutil.Process(os.getppid())
            words, since = above.cmdline(), above.create_time()
        except psutil.Error:
            words, since = [], time.time()
        return _named(words) or _begun(Path(call.project), utc(since))


def _named(words: Sequence[str]) -> str | None:
    """The session that a process was told to work in, if there is one of that id."""
    named = (word for option, word in pairwise(words) if option in _NAMING)
    return next((one for one in named if GeminiAdapter().locate(one)), None)


def _begun(project: Path, since: str) -> str | None:
    """The session that was written last of those that were begun in a directory since then."""
    try:
        logs = [path for path in (project_for(project) / CHATS).glob(f"{BEGINS}*.jsonl") if path.is_file()]
        newest = sorted(logs, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    except OSError:
        return None
    return next((id_of(path) for path in newest[:_LOOKED_AT] if start_of(path) >= since), None)


#: How long it may take from its start to its log, on a busy machine.
START_SECONDS = 60.0


class GeminiPresence(Presence):
    """See `Presence`."""

    def noted(self, session_id: str) -> Collection[int]:
        """See `Presence.noted`: processes in the session's directory that were started just before it was begun."""
        return {pid for log in GeminiAdapter().locate(session_id) for pid in self._since(log)}

    def _since(self, log: Path) -> Iterator[int]:
        root, began = root_of(log.parent.parent), start_of(log)
        if not (root and began):
            return
        moment = datetime.fromisoformat(began).timestamp()
        for process in every_process():
            with contextlib.suppress(psutil.Error, OSError):
                started_before = 0 <= moment - process.create_time() <= START_SECONDS
                if started_before and self.runs(process.cmdline()) and process.cwd() == root:
                    yield process.pid


#: The processes of this agent.
PRESENCE = GeminiPresence(("gemini",), forks=("--session-file",))
