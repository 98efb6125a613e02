"""Notes the source of each branch, hand-over and merge: ``<home>/handovers/<session id>``.

Logs of one agent do not name those of another, nor all of their sources, and a log or the register may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from indexer.files import replace_file
from indexer.paths import private_dir, state_home
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName

#: A note is short; what is larger is none.
_BYTES = 1 << 14


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
    said = {
        **_source(one.source_agent, one.source_session_id), "agent": one.agent, "through": one.through,
        "others": [_source(agent, session_id) for agent, session_id in others],
    }  # fmt: skip
    folder = private_dir(state_home() / "handovers")
    replace_file(folder / one.session_id, [orjson.dumps(said)])


def _source(agent: AgentName, session_id: str) -> dict[str, str]:
    return {"source_agent": agent, "source_session_id": session_id}


def forget(session_id: str) -> None:
    """Keep nothing of a session that is gone."""
    (state_home() / "handovers" / session_id).unlink(missing_ok=True)


def all_known() -> Iterator[HandedOver]:
    """Yield all of them, of each session the one it began with first; skip what is not a note.

    There are none where the home may not be entered, as by a team's server.
    """
    files: list[Path] = []
    with suppress(OSError, RuntimeError):
        files = sorted((state_home() / "handovers").iterdir())
    for file in files:
        with suppress(OSError, ValueError):
            yield from _read(file)


def _read(file: Path) -> list[HandedOver]:
    """Read a note by hand: searches and forks read them, and have no time to import pydantic."""
    with file.open("rb") as stream:
        said = orjson.loads(stream.read(_BYTES))
    agent, source, through = _text(said, "agent"), _text(said, "source_agent"), _text(said, "through", "")
    found = [HandedOver(file.name, agent, source, _text(said, "source_session_id"), through, copied=agent == source)]
    others = said.get("others", [])
    if not isinstance(others, list):
        raise ValueError("no sources")  # noqa: TRY004 - what is not a note
    for one in others:
        other, session_id = _text(one, "source_agent"), _text(one, "source_session_id")
        found.append(HandedOver(file.name, agent, other, session_id, merged=True, copied=agent == source == other))
    return found


def _text(said: Any, name: str, otherwise: str | None = None) -> str:
    value = said.get(name, otherwise) if isinstance(said, dict) else None
    if not isinstance(value, str):
        raise ValueError(name)  # noqa: TRY004 - what is not a note
    return value


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
