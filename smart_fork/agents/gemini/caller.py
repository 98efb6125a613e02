"""Which session of Gemini CLI calls: nothing that it tells its servers says so, and so the process that has started us.

It was told the session that it goes on with, or began one when it started. Where several are begun since, that one
counts which was written last: who calls has just been asked something.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import psutil

from indexer.transcripts.state import utc
from smart_fork.agents.calls import Calls, ClientCall
from smart_fork.agents.gemini.home import BEGINS, CHATS, project_for
from smart_fork.agents.gemini.log import GeminiAdapter, id_of, start_of

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
