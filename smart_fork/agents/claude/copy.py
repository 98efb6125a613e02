"""What of a Claude Code session goes into a copy of it: the active chain, record by record, as one line of parents."""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from indexer.transcripts.state import utc
from indexer.transcripts.tree import rooted
from smart_fork.agents.claude.records import ordered, placed
from smart_fork.agents.claude.side_files import copy_backups, copy_beside
from smart_fork.agents.claude.storage import folder_of
from smart_fork.agents.copier import Copier, Copy, Entry, NewSession, Record, compacted_at
from smart_fork.agents.distilled import Distilled, aside
from smart_fork.agents.excerpt import Excerpt, LiveRecord, characters, newest_summary, shortened
from smart_fork.json_edits import respelled

#: What every record says of where and when it is from.
_OF_EACH = frozenset({"cwd", "version", "gitBranch", "userType", "isSidechain", "timestamp", "entrypoint", "slug"})


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

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """See `Copier.live`. What was typed while the agent worked is a prompt like others."""
        places = {turn.id: number for number, turn in enumerate(session.turns)}
        for identity, (spelled, record) in placed(session.source_path, list(places), lambda _: None):
            if record.get("type") == "attachment":
                record = _as_said(record)  # noqa: PLW2901
            if not isinstance(message := record.get("message"), dict):
                continue
            size, short = characters(message.get("content")), characters(_short(record)["message"].get("content"))
            yield LiveRecord(places[identity], (spelled, record), size, record.get("isCompactSummary") is True, short)

    def distilled(self, session: Session, excerpt: Excerpt, new: NewSession) -> Copy:
        """See `Copier.distilled`."""
        return ClaudeDistilled(session, excerpt, new, newest_summary(self.live(session), excerpt.end))


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
        own = replacements(record, self._calls, self._new.id) if kind == "content-replacement" else None
        return (source, own) if own else None


class ClaudeDistilled(_ClaudeCopy, Distilled):
    """Those turns of a session that an excerpt keeps, as one line of parents.

    What an answer says was in the context then is replaced by what is there now: the agent compacts by it.
    """

    def __init__(self, source: Session, excerpt: Excerpt, new: NewSession, newest: int | None) -> None:
        _ClaudeCopy.__init__(self, source, new)
        Distilled.__init__(self, ClaudeCopier().live(source), excerpt, newest)
        self.parent: str | None = None
        self.loaded = 0
        self._counted: set[int] = set()

    def first(self) -> Iterator[bytes]:
        """What the model was shown instead of long results, of the calls that are kept."""
        kept = self._excerpt.kept - self._excerpt.shortened
        calls = {result.tool_use_id for number in kept for result in self._source.turns[number].tool_results}
        for line in LineReader(self._source.source_path) if calls else ():
            if line.record.get("type") == "content-replacement" and (
                own := replacements(line.record, calls, self._new.id)
            ):
                yield respelled(line.source, own)

    def after(self, other: Distilled) -> None:
        """See `Distilled.after`."""
        if isinstance(other, ClaudeDistilled):
            self.parent, self.loaded = other.parent, other.loaded

    def last(self) -> list[bytes]:
        """See `Distilled.last`."""
        return self._titled()

    def short(self, record: Record) -> Record:
        """See `Distilled.short`."""
        return _short(record)

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        """See `Distilled.record`."""
        spelled, record = entry
        if number not in self._counted:
            self._counted.add(number)
            self.loaded += self._excerpt.tokens[number]
        usage = record["message"].get("usage")
        if isinstance(usage, dict):
            own = self._excerpt.tokens[number]
            none = {name: 0 for name in ("cache_creation_input_tokens", "cache_read_input_tokens") if name in usage}
            counted = {"input_tokens": max(0, self.loaded - own), "output_tokens": own, **none}
            record["message"]["usage"] = {name: counted.get(name, 0) for name in usage if name in counted}
        yield respelled(spelled, self._own(record))

    def summary(self, entry: Entry) -> Iterator[bytes]:
        """See `Distilled.summary`. By its mark the agent would forget what stands above."""
        spelled, record = entry
        for mark in ("isCompactSummary", "isVisibleInTranscriptOnly"):
            record.pop(mark, None)
        yield respelled(spelled, self._own(record | {"isMeta": True}))

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        """See `Distilled.line`."""
        record = {name: value for name, value in before[1].items() if name in _OF_EACH} | {
            "type": "user",
            "message": {"role": "user", "content": aside(text)},
            "isMeta": True,
            "uuid": str(uuid.uuid4()),
        }
        yield orjson.dumps(self._chained(record))

    def _own(self, record: Record) -> Record:
        record["forkedFrom"] = {"sessionId": self._source.session_id, "messageUuid": record["uuid"]}
        return self._chained(record)

    def _chained(self, record: Record) -> Record:
        if self.parent is None:
            record = rooted(record, self._source.root_id)
        record |= {"parentUuid": self.parent, "sessionId": self._new.id}
        record.pop("logicalParentUuid", None)
        if self._new.cwd is not None and "cwd" in record:
            record["cwd"] = str(self._new.cwd)
        self.parent = record["uuid"]
        return record


def replacements(record: Record, calls: Container[str], session_id: str) -> Record | None:
    """What the model was shown instead of long results, of these calls.

    Without it the real program sends the long ones.
    """
    given = record.get("replacements")
    if record.get("agentId") or not isinstance(given, list):
        return None
    own = [one for one in given if isinstance(one, dict) and _in(one.get("toolUseId"), calls)]
    return record | {"sessionId": session_id, "replacements": own} if own else None


def _short(record: Record) -> Record:
    """A record with its results shortened."""
    message = record["message"]
    if not isinstance(blocks := message.get("content"), list):
        return record
    made = [
        block | {"content": shortened(block.get("content"))}
        if isinstance(block, dict) and block.get("type") == "tool_result" and "content" in block
        else block
        for block in blocks
    ]
    return record | {"message": message | {"content": made}}


def _as_said(record: Record) -> Record:
    """What was typed while the agent worked, as a prompt."""
    attachment = record.get("attachment")
    said: Any = attachment.get("prompt") if isinstance(attachment, dict) else None
    kept = {name: value for name, value in record.items() if name != "attachment"}
    return kept | {
        "type": "user",
        "message": {"role": "user", "content": said if isinstance(said, list) else str(said)},
    }


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
