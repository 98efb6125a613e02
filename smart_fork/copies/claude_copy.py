"""What of a Claude Code session goes into a copy of it: the active chain, record by record, as one line of parents."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from indexer.paths import claude_home
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session, Turn
from indexer.transcripts.state import utc
from smart_fork.errors import ForkRefused
from smart_fork.spelling import respelled

Record = dict[str, Any]
#: A record, and how it is spelled in the log.
Entry = tuple[bytes, Record]


class ClaudeCopy:
    """Turns 0 to `end` of a session for a new one, as lines. Only one record at a time is in memory (B-061).

    Not inherited is what a compaction has forgotten, sub-agents, attachments, and records about the session itself
    (B-050, B-060, B-070). `copied` and `backups`, the names of the file versions that are referred to, are complete
    after the last record.
    """

    def __init__(self, session: Session, end: int, *, new: str, cwd: Path, title: str, now: datetime) -> None:
        turns = session.turns[: end + 1]
        self._source = session
        self._order = [turn.id for turn in turns[_compacted_at(turns) :]]
        self._calls = {call.id for turn in turns for call in turn.tool_calls}
        self._new = new
        self._cwd = str(cwd)
        self._title = title
        self._moment = utc(now.astimezone().isoformat())
        self.copied = 0
        self.backups: set[str] = set()

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
                record["sessionId"] = self._new
                record["forkedFrom"] = {"sessionId": self._source.session_id, "messageUuid": identity}
                if "cwd" in record:
                    record["cwd"] = self._cwd
                parent = identity
                self.copied += 1
            yield respelled(source, record)
        if self._title:
            yield from titled(self._new, self._title, self._moment)

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
        return record | {"sessionId": self._new, "replacements": own} if own else None


def titled(session_id: str, title: str, moment: str) -> list[bytes]:
    """A copy's title as ``/rename`` writes it: outside of the chain (B-038). No other record says when it was made."""
    named = {"sessionId": session_id, "timestamp": moment}
    return [
        orjson.dumps({"type": "custom-title", "customTitle": title, **named}),
        orjson.dumps({"type": "agent-name", "agentName": title, **named}),
    ]


def file_history(session_id: str) -> Path:
    """Where Claude Code keeps the versions of files from before a session changed them."""
    return claude_home() / "file-history" / session_id


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
