"""Writing of Codex's sessions: copies for forks with ancestors' records, and conversion of records for sharing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import groupby, starmap
from pathlib import Path

import orjson

from indexer.json_values import dict_in, dicts_in, json_in, text_in
from indexer.transcripts.lines import LineReader, decode_line
from indexer.transcripts.model import Session, UsedTool
from smart_fork.agents.codex import HOME
from smart_fork.agents.codex.ancestry import complete_history, lines_of
from smart_fork.agents.codex.codec import CALLS, CODEC, COMPACTIONS, CodexCodec, compaction_items, note_item, ordinal_of
from smart_fork.agents.codex.sent_records import SeenRecord, enveloped, linked_turns, sent_records
from smart_fork.agents.copier import Copier, Copy, Entry, LiveRecord, NewSession
from smart_fork.agents.decoders import Record, only
from smart_fork.agents.excision.transcript import Transcript
from smart_fork.agents.portable_records import Converter, Image, TargetSession, Utterance, all_texts
from smart_fork.json_edit import respelled

#: The fields of a header that are only true of its own file.
OF_ITS_FILE = ("history_mode", "history_base", "forked_from_ordinal_exclusive", "parent_thread_id", "context_window")

#: The fields that Codex needs to load a session, with values for headers of old versions that lack them.
OF_EACH_HEADER = {"originator": "smart-fork", "cli_version": "0.0.0"}


def _record(moment: str, kind: str, payload: Record) -> Record:
    return {"timestamp": moment, "type": kind, "payload": payload}


class CodexCopy(Copy):
    """The lines of a copy of a Codex session, in the older format, in which a fork's log contains all records."""

    def _new_record(self, kind: str, payload: Record) -> Record:
        """Return a new record of this kind, with the time of the copy."""
        moment = self._new.now.astimezone().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return _record(moment, kind, payload)

    def last(self) -> Iterator[bytes]:
        """Yield the record with the copy's name, if it has one."""
        if self._new.title:
            named = {"type": "thread_name_updated", "thread_id": self._new.id, "thread_name": self._new.title}
            yield orjson.dumps(self._new_record("event_msg", named))

    def header(self) -> Iterator[bytes]:
        """Yield the copy's header: the source's header, without the fields that are only true of the source's file."""
        entries = filter(None, (enveloped(line.source, line.record) for line in LineReader(self._source.source_path)))
        spelled, first = next(
            (entry for entry in entries if entry[1]["type"] == "session_meta"), (b"", {"payload": {}})
        )
        meta: Record = first["payload"]
        header = {name: value for name, value in meta.items() if name not in OF_ITS_FILE}
        for name, value in OF_EACH_HEADER.items():
            header.setdefault(name, value)
        made = self._new_record("session_meta", header)
        header |= {"id": self._new.id, "forked_from_id": self._source.session_id, "timestamp": made["timestamp"]}
        if "session_id" in header:
            header["session_id"] = self._new.id
        if self._new.cwd is not None:
            if header.get("cwd") != str(self._new.cwd):
                header.pop("git", None)  # the branch and commit of another directory
            header["cwd"] = str(self._new.cwd)
            if "runtime_workspace_roots" in header:
                header["runtime_workspace_roots"] = [str(self._new.cwd)]
        yield respelled(spelled, made)

    def up_to(self, end: int) -> Iterator[Entry]:
        return records_up_to(self._source.source_path, self._source.turns[end].id)

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        """Yield a record as a line of the copy; nothing for a header, since the copy has one of its own."""
        source, record = entry
        payload = record["payload"]
        if record["type"] == "session_meta":
            return
        record.pop("ordinal", None)
        to_legacy(payload)
        if self._new.cwd is not None and record["type"] == "turn_context" and "cwd" in payload:
            payload["cwd"] = str(self._new.cwd)
        yield respelled(source, record)

    def summary(self, entry: Entry) -> Iterator[bytes]:
        """Yield a compaction's summary as messages: Codex loads no turns before a compaction's record."""
        for item in compaction_items(entry[1]["payload"]):
            yield orjson.dumps(_record(entry[1].get("timestamp", ""), "response_item", item))

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        yield orjson.dumps(_record(before[1].get("timestamp", ""), "response_item", note_item(text)))


class CodexCopier(Copier):
    """The copier of Codex's sessions."""

    codec, copies = CODEC, CodexCopy

    def place(self, source: Path, new: NewSession) -> Path:
        """Return the path for the copy. Codex files its sessions by day."""
        name = f"rollout-{new.now:%Y-%m-%dT%H-%M-%S}-{new.id}.jsonl"
        return HOME.folder() / "sessions" / f"{new.now:%Y/%m/%d}" / name

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        return CodexCopy(self, session, new, filter(None, starmap(enveloped, records)))

    def live(self, session: Session) -> Iterator[LiveRecord]:
        with Transcript.only_prompts_previewed():
            lines = (
                next(same)
                for _, same in groupby(lines_of(complete_history(session.source_path)), lambda line: line.number)
            )
            turns = linked_turns([SeenRecord.of(line.number, line.record) for line in lines])
        for number, entry in sent_records(turns, session.turns, history_records(session.source_path)):
            yield self.sized(number, entry, sums_up=entry[1]["type"] == "compacted")


def records_up_to(path: Path, last: str | None) -> Iterator[Entry]:
    """Yield the records of a session and its ancestors, up to the end of the task (work on a prompt) of turn `last`.

    Raises:
        NotFound: A session that this one was forked from is gone.
    """
    past = False
    for key, entry in history_records(path):
        payload = entry[1]["payload"]
        if past and key != last and _begins_a_turn(entry[1]["type"], payload):
            return
        past = past or key == last
        yield entry
        if past and payload.get("type") == "task_complete":
            return


def history_records(path: Path) -> Iterator[tuple[str, Entry]]:
    """Yield (turn's id, record) for all records of a session and its ancestors, from all their rollouts (log files).

    Raises:
        NotFound: A rollout of its history is gone.
    """
    for line in lines_of(complete_history(path)):
        if (entry := enveloped(line.source, line.record)) is not None:
            yield str(ordinal_of(line)), entry


def _begins_a_turn(kind: str, payload: Record) -> bool:
    said = payload.get("type")
    if kind == "response_item":
        return said != "message" or payload.get("role") != "assistant"
    return kind in ("turn_context", "compacted") or said in ("task_started", "user_message", "thread_rolled_back")


def to_legacy(payload: Record) -> None:
    """Change an event (a record for the screen) in place to the form that older versions of Codex write."""
    item = dict_in(payload.get("item")) if payload.get("type") == "item_completed" else {}
    kind = {"UserMessage": "user_message", "AgentMessage": "agent_message"}.get(str(item.get("type")))
    if kind and isinstance(parts := item.get("content"), list):
        message = "".join(text_in(part.get("text")) for part in dicts_in(parts))
        payload.clear()
        payload |= {"type": kind, "message": message}


_CALLS = (*CALLS, "web_search_call")
_ANY = ("type", "id", "call_id", "name", "namespace", "status", "turn_id")
#: The shared fields of each kind of item and event. The program's own messages to the model, permissions, copies of
#: outputs for the screen, and rate limits are not shared.
_ITEMS = {
    "message": ("role", "content", "phase", "internal_chat_message_metadata_passthrough"),
    "reasoning": ("summary", "content", "encrypted_content"),
    "function_call": ("arguments",), "function_call_output": ("output",),
    "custom_tool_call": ("input",), "custom_tool_call_output": ("output",),
    "local_shell_call": ("action",),
    "tool_search_call": ("arguments", "execution"), "tool_search_output": ("execution", "tools", "output"),
    "web_search_call": ("action",),
    "image_generation_call": ("revised_prompt", "result"),
    "compaction": ("encrypted_content",), "compaction_summary": ("encrypted_content",),
}  # fmt: skip
_EVENTS = {
    "user_message": ("message", "text", "images", "kind", "text_elements"),
    "agent_message": ("message", "text", "phase"),
    "agent_reasoning": ("text",),
    "token_count": ("info",),
    "task_started": ("model_context_window", "started_at", "collaboration_mode_kind"),
    "task_complete": ("last_agent_message", "completed_at", "duration_ms", "time_to_first_token_ms"),
    "turn_aborted": ("reason", "completed_at", "duration_ms"),
    "thread_rolled_back": ("num_turns",),
    "context_compacted": (),
}  # fmt: skip
#: The beginning of an id that the API gave.
_OF_THE_API = re.compile(r"[a-z]{2,4}_[0-9a-f]")
#: The beginning of a message that the program itself puts before a person's prompt.
_AROUND = re.compile(r"\s*<(?:environment_context|user_instructions|permissions instructions)[\s>]|# AGENTS\.md instr")
_IMAGE_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,")


class CodexConverter(CodexCodec, Converter):
    """Converts Codex's records, and the records of a fork's ancestors, for sharing with teammates.

    All records have ``timestamp``, ``type`` and ``payload``. Headers are not shared; each written log gets a new one.
    """

    taken = frozenset({"ordinal"})
    thoughts = ("reasoning",)
    free = frozenset({"arguments", "input", "output", "action", "tools"})

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        last = None if end is None else session.turns[end].id
        for _, record in records_up_to(session.source_path, last):
            if record["type"] != "session_meta":
                yield record

    def names_another(self, log: bytes) -> bool:
        # The name of a field can be spelled with escapes.
        lines = (line for line in log.split(b"\n") if b"history_base" in line or b"\\u" in line)
        payloads = (dict_in(record.get("payload")) for line in lines for _, record in decode_line(line)[0])
        return any(isinstance(one.get("history_base"), dict) for one in payloads)

    def anew(self, records: Iterable[Record], becomes: TargetSession) -> Iterator[Record]:
        """Yield a new header and the shared records, in the older format, in which a log contains all its records."""
        # Another person's header could name any file as the beginning of the log.
        shared = (record for record in records if record.get("type") != "session_meta")
        for number, record in enumerate(shared):
            made = self.incoming(record, becomes.place)
            if not number:
                yield _header(str(made.get("timestamp") or ""), becomes)
            yield made

    def log_of(self, said: Iterable[Utterance], becomes: TargetSession) -> Iterator[Record]:
        """Yield the log of a new session, with each message as an item (model input) and an event (for the screen)."""
        for number, one in enumerate(said):
            if not number:
                yield _header(one.moment, becomes)
            role, kind = ("user", "input_text") if one.user else ("assistant", "output_text")
            item = {"type": "message", "role": role, "content": [{"type": kind, "text": one.text}]}
            yield _record(one.moment, "response_item", item)
            shown = {"type": "user_message" if one.user else "agent_message", "message": one.text}
            yield _record(one.moment, "event_msg", shown)

    def sent(self, record: Record) -> Record | None:
        kind, payload = record.get("type"), record.get("payload")
        if not isinstance(payload, dict):
            return None
        if kind == "response_item":
            shared = _shared_item(payload)
        elif kind == "event_msg":
            to_legacy(payload := dict(payload))
            shared = _only(payload, _EVENTS)
        elif kind == "compacted":
            shared = _compacted(payload)
        else:
            return None
        return _record(record.get("timestamp", ""), kind, shared) if shared else None

    def calls(self, record: Record) -> Iterator[UsedTool]:
        for item in _items_of(record):
            if item.get("type") in _CALLS:
                given = item.get("arguments", item.get("input", item.get("action")))
                yield UsedTool(_call_id(item), "", _decoded(given))

    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        return self.changed(record, lambda item: _withheld(item, mark) if _call_id(item) in ids else item) or record

    def image(self, value: Record) -> Image | None:
        kind, url = value.get("type"), value.get("image_url")
        if kind == "input_image":
            found = _IMAGE_URL.match(url) if isinstance(url, str) else None
            size = (len(url) - found.end()) * 3 // 4 if found and isinstance(url, str) else 0
            return Image(found[1] if found else "image", size, lambda note: {"type": "input_text", "text": note})
        result = value.get("result")
        if kind == "image_generation_call" and isinstance(result, str) and not result.startswith("["):  # a note
            return Image("image", len(result) * 3 // 4, lambda note: value | {"result": note})
        return None

    def without_thoughts(self, record: Record, of: Callable[[Record], bool]) -> Record | None:
        """Return the record without thoughts for which `of` returns True; `None` for an event that only shows one."""
        shown = dict_in(record.get("payload"))
        if shown.get("type") == "agent_reasoning" and of(shown):
            return None
        return super().without_thoughts(record, of)

    def changed(self, record: Record, change: Callable[[Record], Record | None]) -> Record | None:
        """Return a record with `change` applied to each item in it; `None` if that removes a record's only item."""
        old = list(_items_of(record))
        new = [one for item in old if (one := change(item)) is not None]
        if new == old:
            return record
        if record["type"] == "response_item":
            return record | {"payload": new[0]} if new else None
        return record | {"payload": record["payload"] | {"replacement_history": new}}

    def untied(self, record: Record) -> Record | None:
        """Return the record without the API's ids and encrypted summaries, which only the author's account can use."""
        return self.changed(record, _untied)


def _untied(item: Record) -> Record | None:
    if item.get("type") in COMPACTIONS:
        return None
    return {name: value for name, value in item.items() if name != "id" or not _OF_THE_API.match(str(value))}


def _shared_item(item: Record) -> Record | None:
    """Return an item's fields that may be shared; `None` for a message of the program itself to the model."""
    if item.get("type") == "message":
        texts = [part.get("text") for part in dicts_in(item.get("content"))]
        around = texts and all(isinstance(text, str) and _AROUND.match(text) for text in texts)
        if item.get("role") not in ("user", "assistant") or around:
            return None
    return _only(item, _ITEMS)


def _only(payload: Record, kinds: dict[str, tuple[str, ...]]) -> Record | None:
    names = kinds.get(str(payload.get("type")))
    return None if names is None else {name: payload[name] for name in payload if name in _ANY or name in names}


def _compacted(payload: Record) -> Record:
    left = only(payload, ("message", "replacement_history"))
    if "replacement_history" in left:
        left["replacement_history"] = [*filter(None, map(_shared_item, dicts_in(left["replacement_history"])))]
    return left


def _items_of(record: Record) -> Iterator[Record]:
    """Yield the items in a record: one, or those that a compaction kept."""
    payload = record.get("payload")
    if record.get("type") == "response_item" and isinstance(payload, dict):
        yield payload
    elif record.get("type") == "compacted" and isinstance(payload, dict):
        yield from dicts_in(payload.get("replacement_history"))


def _withheld(item: Record, mark: str) -> Record:
    changed = dict(item)
    for name in ("arguments", "input", "action", "output", "tools"):
        if isinstance(given := item.get(name), str) and name == "arguments" and _decoded(given) is not given:
            changed[name] = orjson.dumps(all_texts(_decoded(given), mark)).decode()
        elif name in item:
            changed[name] = mark if name == "output" else all_texts(given, mark)
    return changed


def _call_id(item: Record) -> str:
    return str(item.get("call_id") or item.get("id") or "")


def _decoded(given: object) -> object:
    """Return the input of a tool call, decoded if it is a text with JSON."""
    if isinstance(given, str) and given.startswith(("{", "[")):
        found = json_in(given)
        return given if found is None else found
    return given


def _header(moment: str, becomes: TargetSession) -> Record:
    own = {"id": becomes.session_id, "timestamp": moment, "cwd": becomes.place.root}
    meta = own | OF_EACH_HEADER | {"source": "cli"}
    if becomes.forked_from:
        meta["forked_from_id"] = becomes.forked_from
    return _record(moment, "session_meta", meta)
