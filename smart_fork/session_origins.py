"""Origins of sessions: which sessions and messages come from other people, and the source of each hand-over.

Anybody who could share a session could have put words there. So an agent that resumes a foreign session asks before it
acts, whatever settings and records say. Forks of a foreign session have its messages, too.

Branches, hand-overs and merges are noted here, because logs of one agent do not name sessions of another agent, nor all
of their sources, and a log or the registry of workers may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import orjson

from indexer import state
from indexer.lazy import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.errors import Conflict, advice


def remember_foreign(session_id: str, messages: Iterable[str]) -> None:
    """Keep of a session of this machine which of its messages are somebody else's."""
    with state.changing() as db:
        db.execute("DELETE FROM foreign_ids WHERE session_id = ?", (session_id,))
        ids = dict.fromkeys((session_id, *messages))
        db.executemany("INSERT INTO foreign_ids VALUES (?, ?)", [(one, session_id) for one in ids])


def forget_foreign(session_id: str) -> None:
    """Keep nothing of a session that is gone."""
    state.change("DELETE FROM foreign_ids WHERE session_id = ?", session_id)


def has_foreign() -> bool:
    """Return True if there are any. Nearly nobody has one."""
    return bool(state.rows("SELECT 1 FROM foreign_ids LIMIT 1"))


def was_received(session_id: str) -> bool:
    """Return True if the session's log was written here from a teammate's or another machine's session."""
    return bool(state.rows("SELECT 1 FROM pulled WHERE id = ?", session_id))


#: Copies that are here while somebody looks at them, and the shared sessions that they were written from.
_LOOKED_AT: dict[str, str] = {}


@contextmanager
def viewing_copy(session_id: str, shared_id: str) -> Iterator[None]:
    """The time in which a copy is here that is taken away again: nothing names it that is read later."""
    _LOOKED_AT[session_id] = shared_id
    try:
        yield
    finally:
        del _LOOKED_AT[session_id]


def viewed_as(session_id: str) -> str | None:
    """Return the shared session that such a copy was written from."""
    return _LOOKED_AT.get(session_id)


def foreign_among(ids: Iterable[str | None]) -> frozenset[str]:
    """Those of these ids that are of such a session, or of a message of one: all, where that cannot be known."""
    every = [one for one in ids if one]
    query = "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM foreign_ids WHERE id = value)"
    try:
        return frozenset(one for (one,) in state.rows(query, orjson.dumps(every).decode()))
    except OSError:
        return frozenset(every)


def refuse_pending_withdrawal(session_id: str) -> None:
    """Refuse a session of which something was withdrawn that is still in it.

    Raises:
        Conflict: there is something.
    """
    if session_id in pending_withdrawals():
        server = state.rows("SELECT written ->> 'server' FROM pulled WHERE id = ?", session_id)[0][0]
        verb = "team sync" if server else "sync"
        raise Conflict(
            "Withdrawn text is still in your copy of this session, which an agent has open.",
            advice(
                f"End that agent, then run: smart-fork {verb}.", tool="The user must end that agent. Then ask again."
            ),
        )


def pending_withdrawals() -> frozenset[str]:
    """The ids of the sessions here of which something was withdrawn that is still in them."""
    return frozenset(one for (one,) in state.rows("SELECT id FROM pulled WHERE edits IS NOT NULL"))


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A session of `agent`, of which other one it is, and up to which of that one's messages.

    `merged` says that it began from another one, and what it has of this one follows; `copied` that it has records of
    it, where other agents are told.
    """

    session_id: str
    agent: AgentName
    source_agent: AgentName
    source_session_id: str
    through: str = ""
    merged: bool = False
    copied: bool = False


def remember_handover(one: HandedOver, others: Iterable[tuple[AgentName, str]] = ()) -> None:
    """Keep from where a session is: from that one, and what follows from the `others`, each with its agent.

    Raises:
        OSError: it cannot be kept.
    """
    sources = [(one.source_agent, one.source_session_id, one.through), *((*other, "") for other in others)]
    with state.changing() as db:
        db.execute("DELETE FROM handovers WHERE session_id = ?", (one.session_id,))
        for nth, source in enumerate(sources):
            db.execute("INSERT INTO handovers VALUES (?, ?, ?, ?, ?, ?)", (one.session_id, nth, one.agent, *source))


def forget_handover(session_id: str) -> None:
    """Keep nothing of a session that is gone."""
    state.change("DELETE FROM handovers WHERE session_id = ?", session_id)


def handovers() -> list[HandedOver]:
    """All of them, of each session the one it began with first.

    There are none where the home may not be entered, as by a team's server.
    """
    found: list[HandedOver] = []
    first = ""
    with suppress(OSError, RuntimeError):
        for one, nth, agent, source, of, through in state.rows("SELECT * FROM handovers ORDER BY session_id, nth"):
            first = first if nth else source
            found.append(HandedOver(one, agent, source, of, through, nth > 0, agent == first == source))
    return found
