"""Writing of Claude Code's sessions: copies for forks, and conversion of its records for sharing.

A copy has the records of the current conversation as one chain: each record names the one before it as its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import orjson

from indexer.json_values import dict_in, dicts_in, list_in
from indexer.safe_files import private_dir
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session, Turn
from smart_fork.agents.claude import HOME
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.claude.session_reader import CODEC, ClaudeCodec
from smart_fork.agents.copier import Entry, Excerpt, NewSession
from smart_fork.agents.decoders import Record, aside, only
from smart_fork.agents.portable_records import Converter, Image, TargetSession, Utterance, all_texts
from smart_fork.agents.storage import copy_file, copy_folder
from smart_fork.agents.tree_copy import Beside, TreeCopier, TreeCopy, records_in_order

#: The subtype of the record that marks a compaction.
_BOUNDARY = "compact_boundary"


def marks_compaction(record: Record) -> bool:
    """Return True if the record marks a compaction."""
    return is_note(record) and record.get("subtype") == _BOUNDARY


def is_note(record: Record) -> bool:
    """Return True if a record is a note of the program, between messages, to itself or to the model."""
    return record.get("type") in ("attachment", "system") and record.get("isSidechain") is not True


def copy_backups(names: Iterable[str], old: str, new: str, created: list[Path]) -> list[str]:
    """Copy the backups `names` (file versions from before edits) from the session `old` to its copy `new`.

    Append a folder made for them to `created`. Return a list with one warning if backups are missing, else empty.
    """
    folder = file_history(new)
    missing = 0
    for name in sorted(filter(_is_plain, names)):
        backup = file_history(old) / name
        if backup.is_symlink() or not backup.is_file():
            missing += 1
            continue
        if not folder.exists():
            created.append(folder)
            private_dir(folder)
        copy_file(backup, folder / name)
    return [f"{missing} earlier versions of files are gone: /rewind cannot restore them"] if missing else []


def file_history(session_id: str) -> Path:
    """Return the folder with the file versions from before a session's edits."""
    return HOME.folder() / "file-history" / session_id


def _is_plain(name: str) -> bool:
    """Return True if `name`, which comes from a log, is a mere file name that leads to no other folder."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


#: The fields of every record that tell its place and time.
_OF_EACH = frozenset({"cwd", "version", "gitBranch", "userType", "isSidechain", "timestamp", "entrypoint", "slug"})


#: The fields of a boundary with the messages that its compaction kept: all of them, or the ends of each row.
_PRESERVED = ("preservedMessages", "preservedSegment")
#: The records that Claude Code's own ``/branch`` copies, since they shape the requests to the model.
_OF_SESSION = frozenset({"atis-latch", "tools-used", "memory-mode", "repl-mode", "history-suppression"})


class ClaudeCopy(TreeCopy):
    """The lines of a copy of a Claude Code session. `backups` are the names of the file versions that its records use.

    If turns are left out, answers get the copy's context size, because Claude Code decides by it when to compact.
    """

    is_link = staticmethod(is_note)

    carried = ("parent", "loaded")
    loaded = 0

    def __init__(self, *of: Any, **how: Any) -> None:
        super().__init__(*of, **how)
        self.backups: set[str] = set()
        self._counted: set[int] = set()

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        copy_folder(self._source.source_path.with_suffix(""), target.with_suffix(""), created)
        return copy_backups(self.backups, self._source.session_id, self._new.id, created)

    def last(self) -> Iterator[bytes]:
        """Yield the two records with the copy's title, as ``/rename`` writes them."""
        if title := self._new.title:
            named = {"sessionId": self._new.id, "timestamp": self._new.moment}
            yield orjson.dumps({"type": "custom-title", "customTitle": title, **named})
            yield orjson.dumps({"type": "agent-name", "agentName": title, **named})

    def own(self, record: Record) -> Record:
        if "sessionId" in record or "parentUuid" in record:
            record["sessionId"] = self._new.id
        if isinstance(record.get("uuid"), str):
            record["forkedFrom"] = {"sessionId": self._source.session_id, "messageUuid": record["uuid"]}
        if record.get("subtype") == "model_refusal_fallback":  # a fork asks the session's own model again
            record["neutralizedByFork"] = True
        if isinstance(self._of, int | Excerpt):  # all that these lead to stands in the line
            record.pop("logicalParentUuid", None)
            for name in _PRESERVED if marks_compaction(record) else ():
                dict_in(record.get("compactMetadata")).pop(name, None)
        if self._new.cwd is not None and "cwd" in record:
            record["cwd"] = str(self._new.cwd)
        self.backups.update(backup_names(record))
        return record

    def order(self, turns: Sequence[Turn]) -> list[str]:
        """Return the turns' ids in the order of sending. Messages that a compaction kept come after its summary."""
        order, known = super().order(turns), {turn.id for turn in turns}
        boundary = turns[-len(order)].parent_id
        for line in LineReader(self._source.source_path) if len(order) < len(turns) else ():
            if marks_compaction(line.record) and line.record.get("uuid") == boundary:
                kept = dict_in(dict_in(line.record.get("compactMetadata")).get(_PRESERVED[0]))
                if kept.get("anchorUuid") == order[0]:
                    order[1:1] = [one for one in list_in(kept.get("uuids")) if _in(one, known.difference(order))]
        return order

    def beside(self, turns: Sequence[Turn]) -> Beside:
        """Return a function that copies records outside the chain of messages if they belong to these turns.

        Such records have file versions, shortened results that the model saw, or facts about the whole session.
        """
        messages = {turn.id for turn in turns[self._source.compacted(len(turns) - 1) :]}
        calls = {call.id for turn in turns for call in turn.tool_calls}

        def made(entry: Entry) -> Entry | None:
            kind, record = entry[1].get("type"), entry[1]
            if kind == "file-history-snapshot" and _in(record.get("messageId"), messages):
                self.backups.update(backup_names(record))
                return entry
            if kind in _OF_SESSION:
                return entry[0], record | {"sessionId": self._new.id}
            own = shortened_results(record, calls, self._new.id) if kind == "content-replacement" else None
            return (entry[0], own) if own else None

        return made

    def recounted(self, number: int, record: Record, tokens: Sequence[int]) -> Record:
        own = tokens[number]
        if number not in self._counted:
            self._counted.add(number)
            self.loaded += own
        usage: Record = dict_in(dict_in(record.get("message")).get("usage"))
        if usage:
            counted = {"input_tokens": max(0, self.loaded - own), "output_tokens": own}
            none = ("cache_creation_input_tokens", "cache_read_input_tokens")
            record["message"]["usage"] = {name: counted.get(name, 0) for name in usage if name in (*counted, *none)}
        return record

    def left(self, entry: Entry) -> Entry:
        marks = ("isCompactSummary", "isVisibleInTranscriptOnly", "logicalParentUuid")
        kept = {name: value for name, value in entry[1].items() if name not in marks}
        return entry[0], self.own(kept | {"isMeta": True})

    def added(self, text: str, near: Record) -> Record:
        record = {name: value for name, value in near.items() if name in _OF_EACH} | {
            "type": "user",
            "message": {"role": "user", "content": aside(text)},
            "isMeta": True,
            "uuid": str(uuid4()),
            "parentUuid": None,
            "sessionId": self._new.id,
        }
        return record | ({"cwd": str(self._new.cwd)} if self._new.cwd is not None and "cwd" in record else {})


class ClaudeCopier(TreeCopier):
    """The copier of Claude Code's sessions.

    A copy has no sub-agents, no records about the session itself, and nothing that a compaction dropped. It has all
    records that shape a request, system prompt included, so that the copy's first request begins like the session's
    last one. If a record's parent is missing, the copy keeps the turns before the gap; the program's own ``--resume``
    and ``--fork-session`` load only the turns after the gap.
    """

    codec = CODEC
    copies = ClaudeCopy

    def place(self, source: Path, new: NewSession) -> Path:
        folder = folder_of(new.cwd) if new.cwd else source.resolve().parent
        return folder / f"{new.id}.jsonl"


def shortened_results(record: Record, calls: Container[str], session_id: str) -> Record | None:
    """Return a record of shortened tool results with only the results of `calls`; `None` if it has none of them.

    Without the record, Claude Code would send the full results instead of the shortened ones that the model saw.
    """
    own = [one for one in dicts_in(record.get("replacements")) if _in(one.get("toolUseId"), calls)]
    return record | {"sessionId": session_id, "replacements": own} if own and not record.get("agentId") else None


def backup_names(record: Record) -> Iterator[str]:
    """Yield the names of the file versions (backups) in a record."""
    for backup in dict_in(dict_in(record.get("snapshot")).get("trackedFileBackups")).values():
        if isinstance(backup, dict) and isinstance(backup.get("backupFileName"), str):
            yield backup["backupFileName"]


def _in(value: object, known: Container[str]) -> bool:
    return isinstance(value, str) and value in known


#: The namespace for the ids of records in a handed-over session.
_MADE = UUID("6b7c4f2e-2f0a-5d0e-9a36-6f6f726b7365")
#: The fields of a record that are shared, without permission modes, hooks, settings of thinking and to-do lists.
_FIELDS = frozenset({
    "type", "subtype", "uuid", "timestamp", "cwd", "gitBranch", "version", "userType", "entrypoint", "isSidechain",
    "isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "message", "requestId", "toolUseResult", "promptId",
    "promptSource", "origin", "commandMode", "sourceToolAssistantUUID", "sourceToolUseID", "isApiErrorMessage", "error",
    "content", "level", "compactMetadata",
})  # fmt: skip
_OF_MESSAGE = frozenset({
    "role", "content", "id", "model", "type", "stop_reason", "stop_sequence", "stop_details", "usage",
})  # fmt: skip
#: The shared fields of each kind of block; results of server tools are shared completely.
_ALL = frozenset[str]()
_BLOCKS = {
    "text": frozenset({"type", "text", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input", "caller"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
    "image": frozenset({"type", "source"}),
    "document": frozenset({"type", "source", "title", "context", "citations"}),
    "server_tool_use": _ALL, "web_search_tool_result": _ALL, "web_fetch_tool_result": _ALL,
    "code_execution_tool_result": _ALL, "mcp_tool_use": _ALL, "mcp_tool_result": _ALL,
}  # fmt: skip


class ClaudeConverter(ClaudeCodec, Converter):
    """Converts Claude Code's records for sharing with teammates, without the ids of parent records."""

    taken = frozenset({"sessionId", "parentUuid", "logicalParentUuid", "forkedFrom"})
    free = frozenset({"input", "toolUseResult", "structuredContent"})

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        order = [turn.id for turn in session.turns[: None if end is None else end + 1]]
        records = records_in_order(session.source_path, order, self.has_place, is_link=is_note)
        return (record for _, (_, record) in records if marks_compaction(record) or not is_note(record))

    def anew(self, records: Iterable[Record], becomes: TargetSession) -> Iterator[Record]:
        return self.in_line(records, becomes, marks_compaction)

    def log_of(self, said: Iterable[Utterance], becomes: TargetSession) -> Iterator[Record]:
        parent: str | None = None
        for number, one in enumerate(said):
            identity = str(uuid5(_MADE, f"{becomes.session_id} {number}"))
            yield {
                "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": becomes.place.root,
                "sessionId": becomes.session_id, "version": "2.0.0", "type": "user" if one.user else "assistant",
                "message": {"role": "user", "content": one.text} if one.user else _answer(identity, one.text),
                "uuid": identity, "timestamp": one.moment,
            }  # fmt: skip
            parent = identity

    def sent(self, record: Record) -> Record | None:
        kind, message = record.get("type"), record.get("message")
        if not marks_compaction(record) and not (kind in ("user", "assistant") and isinstance(message, dict)):
            return None
        kept = only(record, _FIELDS)
        if isinstance(message, dict):
            kept["message"] = message = only(message, _OF_MESSAGE)
            if isinstance(message.get("content"), list):
                message["content"] = [*filter(None, map(_sent, dicts_in(message["content"])))]
                return kept if message["content"] else None
        return kept

    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        """Return the record with `mark` instead of inputs and outputs of the calls `ids`, also those for display."""

        def change(block: Record) -> Record:
            if block.get("type") == "tool_use" and str(block.get("id")) in ids:
                return block | {"input": all_texts(block.get("input"), mark)}
            hidden = block.get("type") == "tool_result" and str(block.get("tool_use_id")) in ids
            return block | {"content": mark} if hidden else block

        new = self.changed(record, change) or record
        return new if new is record or "toolUseResult" not in record else new | {"toolUseResult": mark}

    def image(self, value: Record) -> Image | None:
        if value.get("type") not in ("image", "document", "pdf"):
            return None
        for name, field, kind in (("source", "data", "media_type"), ("file", "base64", "type")):
            given = value.get(name)
            if isinstance(given, dict) and isinstance(data := given.get(field), str) and given.get("type") != "text":
                return Image(str(given.get(kind) or value["type"]), len(data) * 3 // 4, _STANDS_FOR[name])
        return None


#: The form of a note instead of an image: a text block in a message, a plain text in the display.
_STANDS_FOR: dict[str, Callable[[str], Any]] = {"source": lambda note: {"type": "text", "text": note}, "file": str}


def _answer(identity: str, text: str) -> Record:
    return {
        "id": f"msg_{identity.replace('-', '')}", "type": "message", "role": "assistant", "model": "unknown",
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }  # fmt: skip


def _sent(block: Record) -> Record | None:
    if (names := _BLOCKS.get(str(block.get("type")))) is None:
        return None
    return only(block, names) if names else block
