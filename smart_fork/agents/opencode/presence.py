"""Which processes of OpenCode are in a session, as its database tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import apsw
import psutil

from indexer.locks import locked_by
from smart_fork.agents.opencode.command import OpenCodeStarter
from smart_fork.agents.opencode.database import opened
from smart_fork.agents.presence import Note, Presence
from smart_fork.system.processes import Running


class OpenCodePresence(Presence):
    """See `Presence`."""

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[Note]:
        """See `Presence.notes`. It notes nothing: a process is in the session of its directory that was written last,
        if that was since its start and no other session was named to it.
        """
        own = {pid: one for pid, one in processes.items() if self.runs(one.words)} if log else {}
        newest = _last_written(log.parent, session_id) if log and own else None
        for pid, one in own.items() if newest else ():
            with suppress(psutil.Error, OSError):
                named = any(OpenCodeStarter.ids.fullmatch(word) for word in one.words)
                if newest and not named and one.born <= newest[1] and psutil.Process(pid).cwd() == newest[0]:
                    yield Note(pid, session_id, sure=False)

    def near(self, log: Path, processes: Mapping[int, Running]) -> str:
        """See `Presence.near`: who has the database open, in whichever session, may write any of them again."""
        process = locked_by(log.parent, *_LOCKED) if log.parent.is_file() else None
        return "" if process is None else f"process {process} has OpenCode's database open"


#: The bytes on which each connection to an SQLite database has a lock for as long as it is open.
_LOCKED = 0x40000002, 510
_NEWEST = """SELECT id, directory, time_updated / 1000.0 FROM session WHERE parent_id IS NULL
    AND directory = (SELECT directory FROM session WHERE id = ?) ORDER BY time_updated DESC LIMIT 1"""


def _last_written(database: Path, session_id: str) -> tuple[str, float] | None:
    """The directory of a session, and when it was written, if no other session there was written later."""
    try:
        with opened(database) as db:
            one, directory, moment = db.execute(_NEWEST, (session_id,)).fetchone() or ("", "", 0.0)
    except (OSError, apsw.Error):
        return None
    return (str(directory), float(moment)) if one == session_id else None


#: The processes of this agent.
PRESENCE = OpenCodePresence(("opencode",), forks=("--fork",))
