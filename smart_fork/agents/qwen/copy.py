"""What of a Qwen Code session goes into a copy of it: the active chain, record by record, as one line of parents."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from indexer.paths import private_dir
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from indexer.transcripts.state import utc
from indexer.transcripts.tree import rooted
from smart_fork.agents.copier import Copier, Copy, Entry, NewSession, Record, compacted_at, in_order
from smart_fork.agents.distilled import Distilled, aside
from smart_fork.agents.excerpt import Excerpt, LiveRecord, characters, newest_summary, shortened
from smart_fork.agents.files import copy_tree
from smart_fork.agents.qwen.home import CHATS, project_of
from smart_fork.agents.qwen.storage import folder_of
from smart_fork.json_edits import respelled

#: The kinds of records that the model is sent, and the one that stands for all before it.
_SAID = ("user", "assistant", "tool_result")
_COMPACTED = "chat_compression"


class QwenCopier(Copier):
    """Copies of sessions of Qwen Code."""

    name = "qwen"

    def place(self, source: Path, new: NewSession) -> Path:
        folder = folder_of(new.cwd) if new.cwd else project_of(source.resolve()) / CHATS
        return folder / f"{new.id}.jsonl"

    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        return QwenCopy(session, end, new)

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        return QwenExcerpt(session, records, new)

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """See `Copier.live`."""
        places = {turn.id: number for number, turn in enumerate(session.turns)}
        for identity, entry in in_order(list(places), _kept(session.source_path, set(places)), session.source_path):
            record = entry[1]
            sums_up = record.get("subtype") == _COMPACTED
            if record.get("type") in _SAID or sums_up:
                size = len(_left(record)) if sums_up else characters(record.get("message"))
                short = characters(_short(record).get("message"))
                yield LiveRecord(places[identity], entry, size, sums_up, short)

    def distilled(self, session: Session, excerpt: Excerpt, new: NewSession) -> Copy:
        """See `Copier.distilled`."""
        return QwenDistilled(session, excerpt, new, newest_summary(self.live(session), excerpt.end))


class _QwenCopy(Copy):
    """What both kinds of copies have in common.

    A record is found from the directory that it names alone, so all of them name that of the copy.
    """

    def __init__(self, source: Session, new: NewSession) -> None:
        self._source, self._new = source, new
        self._cwd = str(new.cwd) if new.cwd is not None else source.cwd
        self._last: Record = {}
        self.copied = 0

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """See `Copy.copy_beside`: what its sub-agents have said."""
        beside = agents_of(self._source.source_path)
        if beside.is_dir() and not beside.is_symlink():
            private_dir(agents_of(target).parent)
            if copy_tree(beside, agents_of(target)):
                created.append(agents_of(target))
        return []

    def _own(self, record: Record) -> Record:
        """A record as the copy's own."""
        identity = record.get("uuid")
        record["sessionId"] = self._new.id
        if self._cwd:
            record["cwd"] = self._cwd
        if isinstance(identity, str):
            record["forkedFrom"] = {"sessionId": self._source.session_id, "messageUuid": identity}
            self._last = record
        self.copied += 1
        return record

    def _titled(self) -> Iterator[bytes]:
        """The title as ``/rename`` writes it."""
        if self._new.title and self._last:
            last = self._last
            yield orjson.dumps(
                {
                    "uuid": str(uuid.uuid4()),
                    "parentUuid": last["uuid"],
                    "sessionId": self._new.id,
                    "timestamp": utc(self._new.now.astimezone().isoformat()),
                    "type": "system",
                    "provenance": "system",
                    "cwd": last.get("cwd"),
                    "version": last.get("version"),
                    "subtype": "custom_title",
                    "systemPayload": {"customTitle": self._new.title, "titleSource": "manual"},
                }
            )


class QwenExcerpt(_QwenCopy):
    """Records of a session for a new one, as they are but for what says whose they are."""

    def __init__(self, source: Session, records: Iterable[Entry], new: NewSession) -> None:
        super().__init__(source, new)
        self._records = records

    def __iter__(self) -> Iterator[bytes]:
        for spelled, record in self._records:
            yield respelled(spelled, self._own(record))
        yield from self._titled()


class QwenCopy(_QwenCopy):
    """Turns 0 to `end` of a session for a new one, as lines. Only one record at a time is in memory.

    Not inherited is what a compaction has forgotten or a rewinding has left, and records about the session itself:
    telemetry, commands, snapshots of files.
    """

    def __init__(self, session: Session, end: int, new: NewSession) -> None:
        super().__init__(session, new)
        turns = session.turns[: end + 1]
        self._order = [turn.id for turn in turns[compacted_at(turns) :]]

    def __iter__(self) -> Iterator[bytes]:
        """The records, and last the title.

        Raises:
            ForkRefused: the log was rewritten meanwhile.
        """
        parent: str | None = None
        for identity, (spelled, record) in in_order(self._order, self._kept(), self._source.source_path):
            if record.get("type") not in _SAID and record.get("subtype") != _COMPACTED:
                continue
            record["parentUuid"] = parent
            parent = identity
            yield respelled(spelled, self._own(record))
        yield from self._titled()

    def _kept(self) -> Iterator[tuple[str, Entry]]:
        return _kept(self._source.source_path, set(self._order))


class QwenDistilled(_QwenCopy, Distilled):
    """Those turns of a session that an excerpt keeps, as one line of parents."""

    def __init__(self, source: Session, excerpt: Excerpt, new: NewSession, newest: int | None) -> None:
        _QwenCopy.__init__(self, source, new)
        Distilled.__init__(self, QwenCopier().live(source), excerpt, newest)
        self.parent: str | None = None

    def after(self, other: Distilled) -> None:
        """See `Distilled.after`."""
        if isinstance(other, QwenDistilled):
            self.parent = other.parent

    def short(self, record: Record) -> Record:
        """See `Distilled.short`."""
        return _short(record)

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        """See `Distilled.record`. What was in the context then is no more."""
        del number
        spelled, record = entry
        record.pop("usageMetadata", None)
        yield respelled(spelled, self._chained(record))

    def summary(self, entry: Entry) -> Iterator[bytes]:
        """See `Distilled.summary`."""
        yield from self._added(_left(entry[1]), entry)

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        """See `Distilled.line`."""
        yield from self._added(text, before)

    def last(self) -> Iterator[bytes]:
        """See `Distilled.last`."""
        return self._titled()

    def _added(self, text: str, near: Entry) -> Iterator[bytes]:
        kept: Record = {name: near[1][name] for name in ("timestamp", "version", "gitBranch", "cwd") if name in near[1]}
        said = {"message": {"role": "user", "parts": [{"text": aside(text)}]}, "provenance": "system"}
        yield orjson.dumps(self._chained({"uuid": str(uuid.uuid4()), **kept, "type": "user", **said}))

    def _chained(self, record: Record) -> Record:
        if self.parent is None:
            record = rooted(record, self._source.root_id)
        record["parentUuid"], self.parent = self.parent, record["uuid"]
        return self._own(record)


def _kept(source: Path, missing: set[str]) -> Iterator[tuple[str, Entry]]:
    """Each record that is wanted, in file order. The first of an id counts."""
    for line in LineReader(source):
        record, identity = line.record, line.record.get("uuid")
        if isinstance(identity, str) and identity in missing and record.get("isSidechain") is not True:
            missing.discard(identity)
            yield identity, (line.source, record)


def _short(record: Record) -> Record:
    """A record with its results shortened."""
    message = record.get("message")
    parts = message.get("parts") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(parts, list):
        return record
    made = [
        shortened(part) if isinstance(part, dict) and isinstance(part.get("functionResponse"), dict) else part
        for part in parts
    ]
    return record | {"message": message | {"parts": made}}


def _left(record: Record) -> str:
    """What a compaction has left, as a text: its history begins with that."""
    given = record.get("systemPayload")
    history = given.get("compressedHistory") if isinstance(given, dict) else None
    first = next((one for one in history if isinstance(one, dict)), {}) if isinstance(history, list) else {}
    parts = first.get("parts")
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def agents_of(log: Path) -> Path:
    """The folder of the logs of a session's sub-agents."""
    return project_of(log) / "subagents" / log.stem
