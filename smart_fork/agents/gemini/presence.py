"""Where Gemini CLI runs: it notes nothing, but began a session's log shortly after it was started itself."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path

import psutil

from smart_fork.agents.gemini.home import root_of
from smart_fork.agents.gemini.log import GeminiAdapter, start_of
from smart_fork.agents.presence import Presence
from smart_fork.system.processes import every_process

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
