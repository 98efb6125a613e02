"""What of a Claude Code session goes into a copy of it: the active chain, record by record, as one line of parents."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path

import orjson

from indexer.transcripts.model import Session
from indexer.transcripts.state import utc
from smart_fork.agents.claude.records import ordered
from smart_fork.agents.claude.side_files import copy_backups, copy_beside
from smart_fork.agents.claude.storage import folder_of
from smart_fork.agents.copier import Copier, Copy, Entry, NewSession, Record, compacted_at
from smart_fork.json_edits import respelled


class ClaudeCopier(Copier):
    """Copies of sessions of Claude Code."""

    name = "claude"

    def place(self, source: Path, new: NewSession) -> Path:
        folder = folder_of(new.cwd) if new.cwd else source.resolve().parent
        return folder / f"{new.id}.jsonl"

    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        return ClaudeCopy(session, end, new)

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        return ClaudeExcerpt(session, records, new)


class _ClaudeCopy(Copy):
    """What both kinds of copies have in common. `backups` are the names of the file versions that are referred to."""

    def __init__(self, source: Session, new: NewSession) -> None:
        self._source, self._new = source, new
        self.copied = 0
        self.backups: set[str] = set()

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        copy_beside(self._source.source_path, target, created)
        return copy_backups(self.backups, self._source.session_id, self._new.id, created)

    def _titled(self) -> list[bytes]:
        moment = utc(self._new.now.astimezone().isoformat())
        return titled(self._new.id, self._new.title, moment) if self._new.title else []


class ClaudeExcerpt(_ClaudeCopy):
    """Records of a session for a new one, as they are but for what says whose they are."""

    def __init__(self, source: Session, records: Iterable[Entry], new: NewSession) -> None:
        super().__init__(source, new)
        self._records = records

    def __iter__(self) -> Iterator[bytes]:
        for spelled, record in self._records:
            if "sessionId" in record:
                record["sessionId"] = self._new.id
            if isinstance(record.get("uuid"), str):
                record["forkedFrom"] = {"sessionId": self._source.session_id, "messageUuid": record["uuid"]}
            if self._new.cwd is not None and "cwd" in record:
                record["cwd"] = str(self._new.cwd)
            self.backups.update(backups(record))
            self.copied += 1
            yield respelled(spelled, record)
        yield from self._titled()


class ClaudeCopy(_ClaudeCopy):
    """Turns 0 to `end` of a session for a new one, as lines. Only one record at a time is in memory.

     Not inherited is what a compaction has forgotten, sub-agents, attachments, and records about the session itself
    . `copied` and `backups`, the names of the file versions that are referred to, are complete
     after the last record.
    """

    def __init__(self, session: Session, end: int, new: NewSession) -> None:
        super().__init__(session, new)
        turns = session.turns[: end + 1]
        self._order = [turn.id for turn in turns[compacted_at(turns) :]]
        self._messages = frozenset(self._order)
        self._calls = {call.id for turn in turns for call in turn.tool_calls}

    def __iter__(self) -> Iterator[bytes]:
        """The records, and last the title.

        Raises:
            ForkRefused: the log was rewritten meanwhile.
        """
        parent: str | None = None
        for source, record in ordered(self._source.source_path, self._order, self._beside):
            if record["type"] in ("user", "assistant"):
                identity = record["uuid"]
                record["parentUuid"] = parent
                record["sessionId"] = self._new.id
                record["forkedFrom"] = {"sessionId": self._source.session_id, "messageUuid": identity}
                if self._new.cwd is not None and "cwd" in record:
                    record["cwd"] = str(self._new.cwd)
                parent = identity
                self.copied += 1
            yield respelled(source, record)
        yield from self._titled()

    def _beside(self, entry: Entry) -> Entry | None:
        """What belongs to the messages that are copied, and has no place among them."""
        source, record = entry
        kind = record.get("type")
        if kind == "file-history-snapshot" and _in(record.get("messageId"), self._messages):
            self.backups.update(backups(record))
            return entry
        own = self._replacements(record) if kind == "content-replacement" else None
        return (source, own) if own else None

    def _replacements(self, record: Record) -> Record | None:
        """What the model was shown instead of long results, of the calls that are copied.

        Without it the real program sends the long ones.
        """
        given = record.get("replacements")
        if record.get("agentId") or not isinstance(given, list):
            return None
        own = [one for one in given if isinstance(one, dict) and _in(one.get("toolUseId"), self._calls)]
        return record | {"sessionId": self._new.id, "replacements": own} if own else None


def titled(session_id: str, title: str, moment: str) -> list[bytes]:
    """A copy's title as ``/rename`` writes it: outside of the chain. No other record says when it was made."""
    named = {"sessionId": session_id, "timestamp": moment}
    return [
        orjson.dumps({"type": "custom-title", "customTitle": title, **named}),
        orjson.dumps({"type": "agent-name", "agentName": title, **named}),
    ]


def backups(record: Record) -> Iterator[str]:
    """The names of the file versions that a record refers to."""
    snapshot = record.get("snapshot")
    tracked = snapshot.get("trackedFileBackups") if isinstance(snapshot, dict) else None
    for backup in tracked.values() if isinstance(tracked, dict) else ():
        if isinstance(backup, dict) and isinstance(backup.get("backupFileName"), str):
            yield backup["backupFileName"]


def _in(value: object, known: Container[str]) -> bool:
    return isinstance(value, str) and value in known
