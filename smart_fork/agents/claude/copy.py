"""What of a Claude Code session goes into a copy of it: the active chain, record by record, as one line of parents."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

import orjson

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session, Turn
from indexer.transcripts.state import utc
from smart_fork.agents.claude.side_files import copy_backups, copy_beside
from smart_fork.agents.copier import Copier, Copy, Entry, NewSession, Record
from smart_fork.agents.staging import folder_of
from smart_fork.errors import ForkRefused
from smart_fork.spelling import respelled


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
    """Turns 0 to `end` of a session for a new one, as lines. Only one record at a time is in memory (B-061).

    Not inherited is what a compaction has forgotten, sub-agents, attachments, and records about the session itself
    (B-050, B-060, B-070). `copied` and `backups`, the names of the file versions that are referred to, are complete
    after the last record.
    """

    def __init__(self, session: Session, end: int, new: NewSession) -> None:
        super().__init__(session, new)
        turns = session.turns[: end + 1]
        self._order = [turn.id for turn in turns[_compacted_at(turns) :]]
        self._calls = {call.id for turn in turns for call in turn.tool_calls}

    def __iter__(self) -> Iterator[bytes]:
        """The records (B-001…B-004, B-071), and last the title.

        Raises:
            ForkRefused: the log was rewritten meanwhile.
        """
        parent: str | None = None
        for source, record in self._ordered(self._kept()):
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

    def _kept(self) -> Iterator[tuple[str, Entry]]:
        """Each record that is wanted, in file order; its id, where it has a place. The first of an id counts."""
        missing = set(self._order)
        messages = frozenset(self._order)
        for line in LineReader(self._source.source_path):
            record = line.record
            kind, identity = record.get("type"), record.get("uuid")
            if kind in ("user", "assistant", "attachment"):
                said = isinstance(record.get("message"), dict) or kind == "attachment"
                if said and isinstance(identity, str) and identity in missing and record.get("isSidechain") is not True:
                    missing.discard(identity)
                    yield identity, (line.source, record)
            elif kind == "file-history-snapshot" and _in(record.get("messageId"), messages):
                self.backups.update(backups(record))
                yield "", (line.source, record)
            elif kind == "content-replacement" and (own := self._replacements(record)):
                yield "", (line.source, own)

    def _ordered(self, records: Iterable[tuple[str, Entry]]) -> Iterator[Entry]:
        """In the order of the conversation: Claude Code sometimes writes a record before its parent."""
        early: dict[str, Entry] = {}
        wanted = iter(self._order)
        following = next(wanted, None)
        for identity, entry in records:
            if not identity:
                yield entry
                continue
            early[identity] = entry
            while following in early:
                found = early.pop(following)
                if found[1]["type"] != "attachment":
                    yield found
                following = next(wanted, None)
        if following is not None:
            raise ForkRefused(f"The log has changed while it was read: {self._source.source_path}", "Try again.")

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
    """A copy's title as ``/rename`` writes it: outside of the chain (B-038). No other record says when it was made."""
    named = {"sessionId": session_id, "timestamp": moment}
    return [
        orjson.dumps({"type": "custom-title", "customTitle": title, **named}),
        orjson.dumps({"type": "agent-name", "agentName": title, **named}),
    ]


def _compacted_at(turns: Sequence[Turn]) -> int:
    """Where what the last compaction left stands: the one thing of the system's that loads anything."""
    return max((i for i, turn in enumerate(turns) if turn.role == "system" and turn.loaded), default=0)


def backups(record: Record) -> Iterator[str]:
    """The names of the file versions that a record refers to."""
    snapshot = record.get("snapshot")
    tracked = snapshot.get("trackedFileBackups") if isinstance(snapshot, dict) else None
    for backup in tracked.values() if isinstance(tracked, dict) else ():
        if isinstance(backup, dict) and isinstance(backup.get("backupFileName"), str):
            yield backup["backupFileName"]


def _in(value: object, known: Container[str]) -> bool:
    return isinstance(value, str) and value in known
