"""Whose forks sessions of Gemini CLI are: forks have the ids of their parent's messages, and ours name the parent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from indexer.transcripts.base import LogFile
from indexer.transcripts.model import Session
from indexer.transcripts.state import utc
from smart_fork.agents.ancestry import Copied, Heads, Kin, connected
from smart_fork.agents.gemini.fold import lines_of
from smart_fork.agents.gemini.log import GeminiAdapter
from smart_fork.agents.gemini.memory import Memory, sign_of
from smart_fork.agents.gemini.records import Record, answers_in

#: The first message of a log is among so many records.
_HEAD_RECORDS = 500


class GeminiHeads(Heads):
    """How logs of Gemini CLI begin."""

    name = "gemini"

    def family(self, session_id: str, root: str, forks: Mapping[str, str]) -> list[Kin]:
        """See `Heads.family`: the beginnings of all are read, and of the family the rest."""
        del root
        family = connected(session_id, [kin for file in GeminiAdapter().discover() if (kin := _kin(file))], forks)
        for kin in family:
            _read_messages(kin)
        return family

    def shared(self, kin: Kin, parent: Kin, above: Session, fork: Callable[[], Session | None]) -> int:
        """See `Heads.shared`."""
        del parent, fork
        there = {message.id for message in kin.messages}
        return max(
            (number + 1 for number, turn in enumerate(above.turns) if turn.prompt and turn.id in there), default=0
        )


def _kin(file: LogFile) -> Kin | None:
    kin = Kin("gemini", "", file.path, file.mtime_ns)
    memory = Memory()
    try:
        kin.session_id = GeminiAdapter().id_of(file.path)
        for record in islice(lines_of(file.path), _HEAD_RECORDS):
            _note(kin, record)
            said = next((told.id for told in memory.take(record) if _is_said(told.record)), None)
            if said is not None:
                kin.first = Copied(said, kin.recorded)
                return kin
    except OSError:
        return None
    return None


def _note(kin: Kin, record: Record) -> None:
    kin.begun = kin.begun or utc(record.get("startTime"))
    origin = record.get("forkedFrom")
    if isinstance(origin, dict) and isinstance(origin.get("sessionId"), str):
        kin.recorded = kin.recorded or origin["sessionId"]


def _is_said(record: Record) -> bool:
    return bool(sign_of(record)) and not answers_in(record)


def _read_messages(kin: Kin) -> None:
    memory = Memory()
    seen: dict[str, None] = {}
    try:
        for record in lines_of(kin.path):
            seen |= dict.fromkeys(told.id for told in memory.take(record) if _is_said(told.record))
    except OSError:
        return
    kin.messages += [Copied(one, kin.recorded) for one in seen]
