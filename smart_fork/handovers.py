"""Notes the source of each branch, hand-over and merge: ``<home>/handovers/<session id>``.

Logs of one agent do not name those of another, nor all of their sources, and a log or the register may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import BaseModel, ConfigDict, ValidationError

from indexer.files import replace_file
from indexer.paths import private_dir, state_home
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName

#: A note is short; what is larger is none.
_BYTES = 1 << 14


class _Source(BaseModel):
    """A session that another one has something of."""

    model_config = ConfigDict(extra="ignore", strict=True)

    source_agent: str
    source_session_id: str


class _Written(_Source):
    """A note as it is in its file."""

    agent: str
    through: str = ""
    others: list[_Source] = []


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
    """Keep from where a session is: from that one, and what follows from the `others`, each with its agent."""
    said = _Written(
        agent=one.agent,
        source_agent=one.source_agent,
        source_session_id=one.source_session_id,
        through=one.through,
        others=[_Source(source_agent=agent, source_session_id=session_id) for agent, session_id in others],
    )
    folder = private_dir(state_home() / "handovers")
    replace_file(folder / one.session_id, [said.model_dump_json().encode()])


def forget(session_id: str) -> None:
    """Keep nothing of a session that is gone."""
    (state_home() / "handovers" / session_id).unlink(missing_ok=True)


def all_known() -> Iterator[HandedOver]:
    """All of them, of each session that of which it began first; what is no note is passed over."""
    folder = state_home() / "handovers"
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            with file.open("rb") as stream:
                said = _Written.model_validate_json(stream.read(_BYTES))
        except (OSError, ValidationError):
            continue
        as_it_is = said.agent == said.source_agent
        yield HandedOver(
            file.name, said.agent, said.source_agent, said.source_session_id, said.through, copied=as_it_is
        )
        for one in said.others:
            copied = as_it_is and one.source_agent == said.agent
            yield HandedOver(file.name, said.agent, one.source_agent, one.source_session_id, merged=True, copied=copied)


def told_of(session_id: str) -> list[HandedOver]:
    """The sessions that have something of this one, and those that have something of these."""
    known = list(all_known())
    found: list[HandedOver] = []
    reached, waiting = {session_id}, [session_id]
    while waiting:
        source = waiting.pop()
        new = [one for one in known if one.source_session_id == source and one.session_id not in reached]
        found += new
        reached |= {one.session_id for one in new}
        waiting += [one.session_id for one in new]
    return found
