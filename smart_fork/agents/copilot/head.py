"""Whose forks sessions of Copilot CLI are: a fork has its parent's events with their ids, and then names the parent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from indexer.transcripts.base import LogFile
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from indexer.transcripts.state import utc
from smart_fork.agents.ancestry import Copied, Heads, Kin, connected
from smart_fork.agents.copilot.fold import forked_from, is_of_an_agent
from smart_fork.agents.copilot.log import CopilotAdapter

#: The first message of a log is among so many events.
_HEAD_RECORDS = 500
_SAID = ("user.message", "assistant.message", "tool.execution_complete")


class CopilotHeads(Heads):
    """How logs of Copilot CLI begin."""

    name = "copilot"

    def family(self, session_id: str, root: str, forks: Mapping[str, str]) -> list[Kin]:
        """See `Heads.family`: the beginnings of all are read, and of the family the rest."""
        del root
        family = connected(session_id, [kin for file in CopilotAdapter().discover() if (kin := _kin(file))], forks)
        for kin in family:
            _read_messages(kin)
        return family

    def shared(self, kin: Kin, parent: Kin, above: Session, fork: Callable[[], Session | None]) -> int:
        """See `Heads.shared`."""
        del parent, fork
        there = {message.id for message in kin.messages}
        return max((number + 1 for number, turn in enumerate(above.turns) if turn.id in there), default=0)


def _kin(file: LogFile) -> Kin | None:
    try:
        records = (line.record for line in islice(LineReader(file.path), _HEAD_RECORDS))
        first = next((identity for record in records if (identity := _said(record))), None)
    except OSError:
        return None
    session_id = CopilotAdapter().id_of(file.path)
    return Kin("copilot", session_id, file.path, file.mtime_ns, Copied(first)) if first else None


def _said(record: Mapping[str, Any]) -> str:
    """The id of an event that is a message, else nothing."""
    identity = record.get("id")
    is_message = record.get("type") in _SAID and not is_of_an_agent(record)
    return identity if is_message and isinstance(identity, str) else ""


def _read_messages(kin: Kin) -> None:
    """All its messages. Where it says whose fork it is, what stands above was said there."""
    said: list[str] = []
    inherited = 0
    try:
        for line in LineReader(kin.path):
            if parent := forked_from(line.record):
                kin.recorded, inherited = parent, len(said)
                kin.begun = utc(line.record.get("timestamp"))
            elif identity := _said(line.record):
                said.append(identity)
            elif not kin.begun:
                kin.begun = utc(line.record.get("timestamp"))
    except OSError:
        return
    kin.messages += [Copied(one, kin.recorded if number < inherited else "") for number, one in enumerate(said)]
