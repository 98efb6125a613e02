"""Whether a session goes on from somebody else's: it is a copy of one, has words of one, or is a fork of such a one."""

from __future__ import annotations

from indexer.transcripts.lines import bounded
from indexer.transcripts.model import Session
from smart_fork import foreign_sessions, sessions
from smart_fork.errors import Ambiguous, NotFound, Usage
from smart_fork.registry.workers import ASKED, known_worker

#: So many sessions above one are looked at; records that name each other in a circle end there as well.
_DEPTH = 100


def is_others(session_id: str, session: Session | None = None) -> bool:
    """Whether it does, as far as that can be known here; `session` is what was read of it, where it was read.

    Where an id is that of sessions of several agents, it does: what cannot be told is not trusted.
    """
    if not foreign_sessions.there_are():
        return False
    for _ in range(_DEPTH):
        try:
            session = session or _read(session_id)
        except Ambiguous:
            return True
        worker = known_worker(session_id)
        messages = (turn.id for turn in session.turns) if session else ()
        if foreign_sessions.among((session_id, *messages)) or (worker and worker.permission_mode == ASKED):
            return True
        above = session.parent_id if session else None
        above = above or (worker.source_session_id if worker and worker.is_fork else None)
        if not above or above == session_id:
            return False
        session_id, session = above, None
    return True


@bounded()
def _read(session_id: str) -> Session | None:
    try:
        return sessions.look_into(sessions.locate(session_id))
    except Ambiguous:
        raise
    except (NotFound, Usage):
        return None
