"""What of a Qwen Code session goes into a copy of it: the active chain, record by record, as one line of parents."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from indexer.unchecked import dict_in, dicts_in, list_in
from smart_fork.agents.codec import Record, texts_of
from smart_fork.agents.copied_texts import aside, characters, shortened
from smart_fork.agents.copier import Entry, NewSession
from smart_fork.agents.files import copy_folder
from smart_fork.agents.qwen.codec import SAID, QwenCodec, sums_up
from smart_fork.agents.qwen.home import CHATS, agents_of, project_of
from smart_fork.agents.qwen.log import folder_of
from smart_fork.agents.tree_copy import TreeCopier, TreeCopy


class QwenLines(TreeCopy):
    """Records of Qwen Code in a copy. A record is found by its directory alone, so all name the one of the copy."""

    _last: Record | None = None

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """See `Copy.copy_beside`: what its sub-agents have said."""
        copy_folder(agents_of(self._source.source_path), agents_of(target), created)
        return []

    def own(self, record: Record) -> Record:
        """See `TreeCopy.own`."""
        identity = record.get("uuid")
        record["sessionId"] = self._new.id
        if cwd := str(self._new.cwd) if self._new.cwd is not None else self._source.cwd:
            record["cwd"] = cwd
        if isinstance(identity, str):
            record["forkedFrom"] = {"sessionId": self._source.session_id, "messageUuid": identity}
            self._last = record
        return record

    def titled(self) -> Iterator[bytes]:
        """See `TreeCopy.titled`: as ``/rename`` writes it."""
        if self._new.title and (last := self._last):
            yield orjson.dumps({
                "uuid": str(uuid.uuid4()), "parentUuid": last["uuid"], "sessionId": self._new.id,
                "timestamp": self._new.moment, "type": "system", "provenance": "system",
                "cwd": last.get("cwd"), "version": last.get("version"), "subtype": "custom_title",
                "systemPayload": {"customTitle": self._new.title, "titleSource": "manual"},
            })  # fmt: skip

    def recounted(self, number: int, record: Record, tokens: Sequence[int]) -> Record:
        """See `TreeCopy.recounted`."""
        record.pop("usageMetadata", None)
        return record

    def left(self, entry: Entry) -> Entry:
        """See `TreeCopy.left`."""
        return b"", self.added(_left(entry[1]), entry[1])

    def added(self, text: str, near: Record) -> Record:
        """See `TreeCopy.added`."""
        kept: Record = {name: near[name] for name in ("timestamp", "version", "gitBranch", "cwd") if name in near}
        said = {"message": {"role": "user", "parts": [{"text": aside(text)}]}, "provenance": "system"}
        return self.own({"uuid": str(uuid.uuid4()), **kept, "type": "user", **said, "parentUuid": None})


class QwenCopier(TreeCopier):
    """Copies of sessions of Qwen Code.

    Not inherited is what a compaction has forgotten or a rewinding has left, and records about the session itself:
    telemetry, commands, snapshots of files.
    """

    name = "qwen"
    codec = QwenCodec()
    lines = QwenLines

    def place(self, source: Path, new: NewSession) -> Path:
        folder = folder_of(new.cwd) if new.cwd else project_of(source.resolve()) / CHATS
        return folder / f"{new.id}.jsonl"

    def is_sent(self, record: Record) -> bool:
        """See `TreeCopier.is_sent`."""
        return record.get("type") in SAID or sums_up(record)

    def sums_up(self, record: Record) -> bool:
        """See `TreeCopier.sums_up`."""
        return sums_up(record)

    def size(self, record: Record) -> int:
        """See `TreeCopier.size`."""
        return len(_left(record)) if self.sums_up(record) else characters(record.get("message"))

    def short_part(self, part: Record) -> Record:
        """See `TreeCopier.short_part`."""
        if not isinstance(part.get("functionResponse"), dict):
            return part
        made: Record = shortened(part)
        return made


def _left(record: Record) -> str:
    """What a compaction has left, as a text: its history begins with that."""
    history = dicts_in(dict_in(record.get("systemPayload")).get("compressedHistory"))
    return texts_of(list_in(history[0].get("parts"))) if history else ""
