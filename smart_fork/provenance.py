"""Origins of sessions: the sessions and messages from other people, and the sources of branches and hand-overs.

Anybody who can share a session can put words into it. So an agent that resumes such a session, or a fork of it, asks
before it acts, whatever settings and records say.

Branches, hand-overs and merges are noted here, because an agent's logs do not name sessions of another agent, nor all
their sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import orjson

from indexer import state_db
from indexer.lazy_compilation import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.errors import Conflict, advice


def remember_foreign(session_id: str, messages: Iterable[str]) -> None:
    """Note that a session on this machine, and its messages with these ids, come from other people."""
    with state_db.changing() as db:
        db.execute("DELETE FROM foreign_ids WHERE session_id = ?", (session_id,))
        ids = dict.fromkeys((session_id, *messages))
        db.executemany("INSERT INTO foreign_ids VALUES (?, ?)", [(one, session_id) for one in ids])


def forget_foreign(session_id: str) -> None:
    """Delete the note that a session comes from other people, after the session was deleted."""
    state_db.change("DELETE FROM foreign_ids WHERE session_id = ?", session_id)


def has_foreign() -> bool:
    """Return True if any session or message on this machine comes from other people."""
    return bool(state_db.rows("SELECT 1 FROM foreign_ids LIMIT 1"))


def was_received(session_id: str) -> bool:
    """Return True if smart-fork wrote the session's log, as a copy from a teammate or another machine."""
    return bool(state_db.rows("SELECT 1 FROM pulled WHERE id = ?", session_id))


#: The shared session of each copy that exists only while its user reads it.
_LOOKED_AT: dict[str, str] = {}


@contextmanager
def viewing_copy(session_id: str, shared_id: str) -> Iterator[None]:
    """Mark a session inside the context as a temporary copy, only for reading, of the shared session `shared_id`."""
    _LOOKED_AT[session_id] = shared_id
    try:
        yield
    finally:
        del _LOOKED_AT[session_id]


def viewed_as(session_id: str) -> str | None:
    """Return the id of the shared session of which a session is a temporary copy (see `viewing_copy`), or `None`."""
    return _LOOKED_AT.get(session_id)


def foreign_among(ids: Iterable[str | None]) -> frozenset[str]:
    """Return those of `ids` that are of sessions or messages from other people; all, if the notes cannot be read."""
    every = [one for one in ids if one]
    query = "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM foreign_ids WHERE id = value)"
    try:
        return frozenset(one for (one,) in state_db.rows(query, orjson.dumps(every).decode()))
    except OSError:
        return frozenset(every)


def refuse_pending_withdrawal(session_id: str) -> None:
    """Refuse to use a session that still contains text that its owner has withdrawn.

    Raises:
        Conflict: the session contains withdrawn text.
    """
    if session_id in pending_withdrawals():
        server = state_db.rows("SELECT written ->> 'server' FROM pulled WHERE id = ?", session_id)[0][0]
        verb = "team sync" if server else "sync"
        raise Conflict(
            "Withdrawn text is still in your copy of this session, which an agent has open.",
            advice(
                f"End that agent, then run: smart-fork {verb}.", tool="The user must end that agent. Then ask again."
            ),
        )


def pending_withdrawals() -> frozenset[str]:
    """Return the ids of sessions on this machine that still contain text that the text's owner has withdrawn."""
    return frozenset(one for (one,) in state_db.rows("SELECT id FROM pulled WHERE edits IS NOT NULL"))


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The origin of a session: the source session that it was branched, handed over or merged from.

    `through` is the id of the last message taken from the source. `merged` is True for all sources after the first.
    `copied` is True if the source's records were copied, and False if they were rewritten for another agent.
    """

    session_id: str
    agent: AgentName
    source_agent: AgentName
    source_session_id: str
    through: str = ""
    merged: bool = False
    copied: bool = False


def remember_handover(one: HandedOver, others: Iterable[tuple[AgentName, str]] = ()) -> None:
    """Note a session's first source in `one`, and in `others` the sources merged into it, by agent and id.

    Raises:
        OSError: the origin cannot be stored.
    """
    sources = [(one.source_agent, one.source_session_id, one.through), *((*other, "") for other in others)]
    with state_db.changing() as db:
        db.execute("DELETE FROM handovers WHERE session_id = ?", (one.session_id,))
        for nth, source in enumerate(sources):
            db.execute("INSERT INTO handovers VALUES (?, ?, ?, ?, ?, ?)", (one.session_id, nth, one.agent, *source))


def forget_handover(session_id: str) -> None:
    """Delete the note of where a session comes from, after the session was deleted."""
    state_db.change("DELETE FROM handovers WHERE session_id = ?", session_id)


def handovers() -> list[HandedOver]:
    """Return the origins of all branched, merged and handed-over sessions, for each session the first source first.

    The list is empty if the state folder cannot be read, as on a team's server.
    """
    found: list[HandedOver] = []
    first = ""
    with suppress(OSError, RuntimeError):
        for one, nth, agent, source, of, through in state_db.rows("SELECT * FROM handovers ORDER BY session_id, nth"):
            first = first if nth else source
            found.append(HandedOver(one, agent, source, of, through, nth > 0, agent == first == source))
    return found
