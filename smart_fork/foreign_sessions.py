"""Records which sessions and messages on this machine come from other people.

Whoever could share a session could have put words there. So an agent that goes on from it asks before it acts, whatever
settings and records say. Forks have these messages, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import orjson

from indexer import state
from smart_fork.errors import Conflict, advice


def remember(session_id: str, messages: Iterable[str]) -> None:
    """Keep of a session of this machine which of its messages are somebody else's."""
    with state.changing() as db:
        db.execute("DELETE FROM foreign_ids WHERE session_id = ?", (session_id,))
        ids = dict.fromkeys((session_id, *messages))
        db.executemany("INSERT INTO foreign_ids VALUES (?, ?)", [(one, session_id) for one in ids])


def forget(session_id: str) -> None:
    """Keep nothing of a session that is gone."""
    state.change("DELETE FROM foreign_ids WHERE session_id = ?", session_id)


def there_are() -> bool:
    """Return True if there are any. Nearly nobody has one."""
    return bool(state.rows("SELECT 1 FROM foreign_ids LIMIT 1"))


def is_taken(session_id: str) -> bool:
    """Return True if the session's log was written here from a teammate's or another machine's session."""
    return bool(state.rows("SELECT 1 FROM pulled WHERE id = ?", session_id))


#: Copies that are here while somebody looks at them, and the shared sessions that they were written from.
_LOOKED_AT: dict[str, str] = {}


@contextmanager
def looked_at(session_id: str, shared_id: str) -> Iterator[None]:
    """The time in which a copy is here that is taken away again: nothing names it that is read later."""
    _LOOKED_AT[session_id] = shared_id
    try:
        yield
    finally:
        del _LOOKED_AT[session_id]


def shared_as(session_id: str) -> str | None:
    """Return the shared session that such a copy was written from."""
    return _LOOKED_AT.get(session_id)


def among(ids: Iterable[str | None]) -> frozenset[str]:
    """Those of these ids that are of such a session, or of a message of one: all, where that cannot be known."""
    every = [one for one in ids if one]
    query = "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM foreign_ids WHERE id = value)"
    try:
        return frozenset(one for (one,) in state.rows(query, orjson.dumps(every).decode()))
    except OSError:
        return frozenset(every)


def refuse_owing(session_id: str) -> None:
    """Refuse a session of which something was withdrawn that is still in it.

    Raises:
        Conflict: there is something.
    """
    if session_id in owing():
        server = state.rows("SELECT written ->> 'server' FROM pulled WHERE id = ?", session_id)[0][0]
        verb = "team sync" if server else "sync"
        raise Conflict(
            "Withdrawn text is still in your copy of this session, which an agent has open.",
            advice(
                f"End that agent, then run: smart-fork {verb}.", tool="The user must end that agent. Then ask again."
            ),
        )


def owing() -> frozenset[str]:
    """The ids of the sessions here of which something was withdrawn that is still in them."""
    return frozenset(one for (one,) in state.rows("SELECT id FROM pulled WHERE edits IS NOT NULL"))
