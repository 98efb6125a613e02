"""Whose forks sessions of Gemini CLI are: forks have the ids of their parent's messages, and ours name the parent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from indexer.transcripts.model import Session
from indexer.transcripts.state import utc
from smart_fork.agents.ancestry import HEAD_RECORDS, Copied, Heads, Kin
from smart_fork.agents.codec import Record
from smart_fork.agents.gemini.codec import answers_in
from smart_fork.agents.gemini.fold import lines_of
from smart_fork.agents.gemini.memory import Memory, sign_of


class GeminiHeads(Heads):
    """How logs of Gemini CLI begin."""

    def begins(self, kin: Kin) -> bool:
        """See `Heads.begins`."""
        memory = Memory()
        for record in islice(lines_of(kin.path), HEAD_RECORDS):
            _note(kin, record)
            if (said := next((told.id for told in memory.take(record) if _is_said(told.record)), None)) is not None:
                kin.first = Copied(said, kin.recorded)
                return True
        return False

    def messages(self, kin: Kin) -> list[Copied]:
        """See `Heads.messages`."""
        memory = Memory()
        told = (one for record in lines_of(kin.path) for one in memory.take(record))
        return [Copied(one, kin.recorded) for one in dict.fromkeys(one.id for one in told if _is_said(one.record))]

    def shared(self, kin: Kin, parent: Kin, above: Session, fork: Callable[[], Session | None]) -> int:
        """See `Heads.shared`."""
        there = {message.id for message in kin.messages}
        return max(
            (number + 1 for number, turn in enumerate(above.turns) if turn.prompt and turn.id in there), default=0
        )


def _note(kin: Kin, record: Record) -> None:
    kin.begun = kin.begun or utc(record.get("startTime"))
    origin = record.get("forkedFrom")
    if isinstance(origin, dict) and isinstance(origin.get("sessionId"), str):
        kin.recorded = kin.recorded or origin["sessionId"]


def _is_said(record: Record) -> bool:
    return bool(sign_of(record)) and not answers_in(record)
