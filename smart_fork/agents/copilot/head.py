"""Whose forks sessions of Copilot CLI are: a fork has its parent's events with their ids, and then names the parent."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from indexer.transcripts.lines import LineReader
from indexer.transcripts.state import utc
from smart_fork.agents.ancestry import HEAD_RECORDS, Copied, Heads, Kin
from smart_fork.agents.copilot.fold import forked_from, is_of_an_agent

_SAID = ("user.message", "assistant.message", "tool.execution_complete")


class CopilotHeads(Heads):
    """How logs of Copilot CLI begin."""

    def begins(self, kin: Kin) -> bool:
        """See `Heads.begins`."""
        records = (line.record for line in islice(LineReader(kin.path), HEAD_RECORDS))
        kin.first = next((Copied(identity) for record in records if (identity := _said(record))), None)
        return kin.first is not None

    def messages(self, kin: Kin) -> list[Copied]:
        """See `Heads.messages`. If it says whose fork it is, all above was said there."""
        said: list[str] = []
        inherited = 0
        for line in LineReader(kin.path):
            if parent := forked_from(line.record):
                kin.recorded, inherited = parent, len(said)
                kin.begun = utc(line.record.get("timestamp"))
            elif identity := _said(line.record):
                said.append(identity)
            elif not kin.begun:
                kin.begun = utc(line.record.get("timestamp"))
        return [Copied(one, kin.recorded if number < inherited else "") for number, one in enumerate(said)]


def _said(record: Mapping[str, Any]) -> str:
    """The id of an event that is a message, else nothing."""
    identity = record.get("id")
    is_message = record.get("type") in _SAID and not is_of_an_agent(record)
    return identity if is_message and isinstance(identity, str) else ""
