"""Where Copilot CLI runs: it notes each running session in ``inuse.<pid>.lock`` beside its log."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from smart_fork.agents.copilot.log import CopilotAdapter
from smart_fork.agents.presence import Presence

_NOTE = re.compile(r"inuse\.([1-9]\d{0,9})\.lock")


class CopilotPresence(Presence):
    """See `Presence`."""

    def goes_on_in(self, session_id: str, words: Collection[str]) -> bool:
        """See `Presence.goes_on_in`: its options are one word each with what they name."""
        return bool({f"--resume={session_id}", f"--session-id={session_id}", session_id} & set(words))

    def noted(self, session_id: str) -> Collection[int]:
        """See `Presence.noted`. The note may stay when the process has ended."""
        return {pid for log in CopilotAdapter().locate(session_id) for pid in processes_in(log.parent)}


#: The processes of this agent.
PRESENCE = CopilotPresence(("copilot",))


def processes_in(folder: Path) -> Iterator[int]:
    """Yield the processes that are noted in the folder of a session."""
    with suppress(OSError):
        for one in folder.iterdir():
            if found := _NOTE.fullmatch(one.name):
                yield int(found[1])
