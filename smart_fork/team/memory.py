"""The shared session that was read last, in the memory of this process alone, for whoever reads on in it.

Its server is asked each time before anything of it is told: so what was withdrawn since, or is not to be read any more,
is not told again, and is gone from here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from indexer.transcripts.model import Session
from smart_fork.sharing.limits import MIB
from smart_fork.sharing.wire import SessionInfo
from smart_fork.team.project import Project

#: So long somebody is taken to read on, and so large a session is kept at most.
SECONDS, MOST_BYTES = 600.0, 32 * MIB
#: A server, project and session, with the directory in which it is read and whether it is one's own.
_Name = tuple[str, str, str, str, bool]


class Memory:
    """One session. What it is known by is the digest of all its records: another one is another conversation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[_Name, tuple[int, str], Session] | None = None
        self._end: threading.Timer | None = None

    def session(
        self, where: Project, info: SessionInfo, size: int, *, mine: bool, read: Callable[[], Session]
    ) -> Session:
        """The session as the server has it now: the one that was read last, or else what `read` makes of it."""
        name = (where.server, where.key, info.id, str(where.place.root), mine)
        state = (info.record_count, info.head_digest)
        with self._lock:
            kept = self._kept
        if kept is not None and kept[:2] == (name, state):
            self._keep(kept)
            return kept[2]
        self.forget()
        made = read()
        if size <= MOST_BYTES:
            self._keep((name, state, made))
        return made

    def forget(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._kept = None
            if self._end is not None:
                self._end.cancel()
            self._end = None

    def _keep(self, kept: tuple[_Name, tuple[int, str], Session]) -> None:
        self.forget()
        with self._lock:
            self._kept = kept
            self._end = threading.Timer(SECONDS, self.forget)
            self._end.daemon = True
            self._end.start()


#: That of this process.
MEMORY = Memory()
