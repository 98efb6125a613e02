"""Writing of Qwen Code's sessions: copies for forks, and conversion of its records for sharing.

A copy has only the records that lead to the session's last record: each record names the one before it as its parent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import orjson

from indexer.transcripts.model import Session
from smart_fork.agents.copier import Entry, NewSession
from smart_fork.agents.decoders import Record, aside, only
from smart_fork.agents.portable_records import (
    SHARED,
    PartConverter,
    TargetSession,
    Utterance,
    all_texts,
    unsigned,
    withheld,
)
from smart_fork.agents.qwen.log_files import CHATS, agents_of, folder_of, project_of
from smart_fork.agents.qwen.session_reader import CODEC, SAID, QwenCodec, parts_of, summary_in
from smart_fork.agents.storage import copy_folder
from smart_fork.agents.tree_copy import TreeCopier, TreeCopy, records_in_order


class QwenCopy(TreeCopy):
    """A copy of one Qwen Code session. Its records get the copy's directory, because Qwen Code finds sessions by it."""

    _last: Record | None = None

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """Copy the logs of the source session's sub-agents to the copy's folder, and add the new paths to `created`."""
        copy_folder(agents_of(self._source.source_path), agents_of(target), created)
        return []

    def own(self, record: Record) -> Record:
        identity = record.get("uuid")
        record["sessionId"] = self._new.id
        if cwd := str(self._new.cwd) if self._new.cwd is not None else self._source.cwd:
            record["cwd"] = cwd
        if isinstance(identity, str):
            record["forkedFrom"] = {"sessionId": self._source.session_id, "messageUuid": identity}
            self._last = record
        return record

    def last(self) -> Iterator[bytes]:
        """Yield the record with the copy's title, as ``/rename`` writes it."""
        if self._new.title and (last := self._last):
            yield orjson.dumps({
                "uuid": str(uuid4()), "parentUuid": last["uuid"], "sessionId": self._new.id,
                "timestamp": self._new.moment, "type": "system", "provenance": "system",
                "cwd": last.get("cwd"), "version": last.get("version"), "subtype": "custom_title",
                "systemPayload": {"customTitle": self._new.title, "titleSource": "manual"},
            })  # fmt: skip

    def recounted(self, number: int, record: Record, tokens: Sequence[int]) -> Record:
        record.pop("usageMetadata", None)
        return record

    def left(self, entry: Entry) -> Entry:
        return b"", self.added(summary_in(entry[1]), entry[1])

    def added(self, text: str, near: Record) -> Record:
        kept: Record = {name: near[name] for name in ("timestamp", "version", "gitBranch", "cwd") if name in near}
        said = {"message": {"role": "user", "parts": [{"text": aside(text)}]}, "provenance": "system"}
        return self.own({"uuid": str(uuid4()), **kept, "type": "user", **said, "parentUuid": None})


class QwenCopier(TreeCopier):
    """The copier of Qwen Code's sessions, for forks.

    A copy has the messages since the last compaction, except those that a person has undone by a rewind. Records about
    the session itself are not copied: telemetry, commands and snapshots of files.
    """

    codec = CODEC
    copies = QwenCopy

    def place(self, source: Path, new: NewSession) -> Path:
        folder = folder_of(new.cwd) if new.cwd else project_of(source.resolve()) / CHATS
        return folder / f"{new.id}.jsonl"


#: The shared fields of a record. Telemetry, snapshots of files and edits, and Qwen Code's commands are not shared.
_FIELDS = frozenset({
    "uuid", "timestamp", "type", "subtype", "provenance", "cwd", "version", "gitBranch", "message", "model",
    "usageMetadata", "toolCallResult", "systemPayload",
})  # fmt: skip
#: The namespace for the ids of records in handed-over sessions.
_MADE = UUID("0f2d3c4b-6b7c-5d0e-9a36-71776e636f64")


class QwenConverter(QwenCodec, PartConverter):
    """Converts Qwen Code's records for sharing with teammates, without the ids of parent records."""

    taken = frozenset({"sessionId", "parentUuid", "forkedFrom"})
    free = frozenset({"args", "response", "toolCallResult", "systemPayload"})

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        turns = session.turns[: None if end is None else end + 1]
        records = records_in_order(session.source_path, [turn.id for turn in turns], self.has_place)
        return (record for _, (_, record) in records if _is_said(record))

    def anew(self, records: Iterable[Record], becomes: TargetSession) -> Iterator[Record]:
        return self.in_line(records, becomes)

    def log_of(self, said: Iterable[Utterance], becomes: TargetSession) -> Iterator[Record]:
        parent: str | None = None
        before: bool | None = None
        for number, one in enumerate(said):
            # Qwen Code joins consecutive messages of one side without a separator.
            text = f"\n\n{one.text}" if one.user == before else one.text
            before = one.user
            identity = str(uuid5(_MADE, f"{becomes.session_id} {number}"))
            yield {
                "uuid": identity, "parentUuid": parent, "sessionId": becomes.session_id, "timestamp": one.moment,
                "type": "user" if one.user else "assistant", "cwd": becomes.place.root, "version": "0.24.4",
                "provenance": "real_user" if one.user else "assistant_output",
                "message": {"role": "user" if one.user else "model", "parts": [{"text": text}]},
            }  # fmt: skip
            parent = identity

    def sent(self, record: Record) -> Record | None:
        if not _is_said(record):
            return None
        kept = only(record, _FIELDS)
        if isinstance(message := record.get("message"), dict):
            parts = [only(part, SHARED) for part in parts_of(message)]
            kept["message"] = {"role": message.get("role"), "parts": [part for part in parts if part]}
            return kept if kept["message"]["parts"] else None
        return kept

    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        new = self.changed(record, lambda part: withheld(part, ids, mark)) or record
        if new is record or "toolCallResult" not in record:
            return new
        return new | {"toolCallResult": _withheld_result(record["toolCallResult"], mark)}

    def untied(self, record: Record) -> Record | None:
        """Return the record without signatures, which are valid for one account; `None` without parts."""
        return self.changed(record, unsigned)


def _is_said(record: Record) -> bool:
    is_message = record.get("type") in SAID and isinstance(record.get("message"), dict)
    return is_message or (record.get("type") == "system" and CODEC.sums_up(record))


def _withheld_result(result: Any, mark: str) -> Any:
    """Return a tool result with all its texts replaced by `mark`. The call's id and status stay."""
    names = ("callId", "status", "executionStatus")
    if not isinstance(result, dict):
        return mark
    return {name: value if name in names else all_texts(value, mark) for name, value in result.items()}
