"""Which sessions of this machine began from another agent's: ``<home>/handovers/<session id>``.

Logs of one agent do not name those of another, and the register of workers may be lost: so each has a note of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, ValidationError

from indexer.files import replace_file
from indexer.paths import private_dir, state_home
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName

#: A note is short; what is larger is none.
_BYTES = 1 << 14


class _Written(BaseModel):
    """A note as it is in its file."""

    model_config = ConfigDict(extra="ignore", strict=True)

    agent: str
    source_agent: str
    source_session_id: str
    through: str = ""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A session of `agent`, from which other one it began, and up to which of that one's messages."""

    session_id: str
    agent: AgentName
    source_agent: AgentName
    source_session_id: str
    through: str = ""


def remember(one: HandedOver) -> None:
    """Keep from where a session is."""
    said = _Written(
        agent=one.agent,
        source_agent=one.source_agent,
        source_session_id=one.source_session_id,
        through=one.through,
    )
    folder = private_dir(state_home() / "handovers")
    replace_file(folder / one.session_id, [said.model_dump_json().encode()])


def forget(session_id: str) -> None:
    """Keep nothing of a session that is gone."""
    (state_home() / "handovers" / session_id).unlink(missing_ok=True)


def all_known() -> Iterator[HandedOver]:
    """All of them; what is no note is passed over."""
    folder = state_home() / "handovers"
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            with file.open("rb") as stream:
                said = _Written.model_validate_json(stream.read(_BYTES))
        except (OSError, ValidationError):
            continue
        yield HandedOver(file.name, **said.model_dump())


def told_of(session_id: str) -> list[HandedOver]:
    """The sessions that were told of this one, and those that were told of these."""
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
