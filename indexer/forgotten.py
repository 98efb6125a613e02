"""Sessions that a person has had forgotten: a list that outlives the index, so that none of them comes back.

It holds ids and nothing of what was said. What a person has noted of such a session goes in the same transaction.
"""

from __future__ import annotations

from indexer import state
from indexer.transcripts.model import AgentName

TYPE_CHECKING = False
if TYPE_CHECKING:
    import apsw

Forgotten = dict[tuple[AgentName, str], str]


def forgotten() -> Forgotten:
    """The sessions by agent and id, with the time they were forgotten at.

    Raises:
        OSError: the list cannot be read; nothing must be indexed then.
    """
    return {(agent, session_id): at for agent, session_id, at in state.rows("SELECT * FROM forgotten")}


def add(agent: AgentName, session_id: str, at: str) -> None:
    """Put a session on the list. For whoever holds the index's lock.

    Raises:
        OSError: it cannot be written; the list is what it was.
    """
    with state.changing() as db:
        db.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?, ?)", (agent, session_id, at))
        drop_notes(db, agent, session_id)


def drop_notes(db: apsw.Connection, agent: AgentName, session_id: str) -> None:
    """Delete what a person has noted of a session, in the transaction of whoever calls."""
    for table in ("verdicts", "marks"):
        db.execute(f"DELETE FROM {table} WHERE agent = ? AND session_id = ?", (agent, session_id))  # noqa: S608


def strike(agent: AgentName, session_id: str) -> None:
    """Take a session off the list. For whoever holds the index's lock.

    Raises:
        OSError: it cannot be written; the list is what it was.
    """
    state.change("DELETE FROM forgotten WHERE agent = ? AND session_id = ?", agent, session_id)
