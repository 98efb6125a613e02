"""Notes the source of each branch, hand-over and merge.

Logs of one agent do not name those of another, nor all of their sources, and a log or the register may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from indexer import state
from indexer.lazy import dataclass
from indexer.transcripts.model import AgentName


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


def remember(one: HandedOver, others: Iterable[tuple[AgentName, str]] = ()) -> None:
    """Keep from where a session is: from that one, and what follows from the `others`, each with its agent.

    Raises:
        OSError: it cannot be kept.
    """
    sources = [(one.source_agent, one.source_session_id, one.through), *((*other, "") for other in others)]
    with state.changing() as db:
        db.execute("DELETE FROM handovers WHERE session_id = ?", (one.session_id,))
        for nth, source in enumerate(sources):
            db.execute("INSERT INTO handovers VALUES (?, ?, ?, ?, ?, ?)", (one.session_id, nth, one.agent, *source))


def forget(session_id: str) -> None:
    """Keep nothing of a session that is gone."""
    state.change("DELETE FROM handovers WHERE session_id = ?", session_id)


def all_known() -> list[HandedOver]:
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
