"""What of a Codex session goes into a copy of it: its records and those of the sessions it was forked from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import starmap
from pathlib import Path

import orjson

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from indexer.transcripts.texts import strip_boilerplate
from indexer.values import dicts_in, list_in
from smart_fork.agents import AGENTS
from smart_fork.agents.codec import Record, texts_of
from smart_fork.agents.codex import HOME
from smart_fork.agents.codex.codec import OUTPUTS, ordinal_of
from smart_fork.agents.codex.history import lines_of, whole
from smart_fork.agents.copied_texts import aside, characters, shortened
from smart_fork.agents.copier import Copier, Copy, Entry, LiveRecord, NewSession
from smart_fork.agents.cuts.model import TranscriptTurn
from smart_fork.json_edits import respelled

#: What begins with a turn of the agent's; it goes with what follows.
_BEGINS = ("task_started", "turn_context", "world_state")
#: What speaks of the whole session, and would be wrong of a part of it.
_OF_THE_WHOLE = ("token_count", "thread_rolled_back", "thread_name_updated", "context_compacted", "session_meta")


def remembered(session: Session, records: Iterable[tuple[str, Entry]]) -> Iterator[tuple[int, Entry]]:
    """Those of these records, each with its id, that are remembered, with the number of the turn that each goes with.

    Not among them is what was rolled back. A thought goes with what came of it, what is said twice with its message,
    and what the program told the model with what follows.
    """
    cutter = AGENTS.cutter_of("codex")
    lines = {line.id: line for line in cutter.load(session.source_path).turns}
    places = {turn.id: number for number, turn in enumerate(session.turns)}
    numbers = cutter.numbered(tuple(lines.values()), [places.get(one) for one in lines])
    found = {one: number for one, number in zip(lines, numbers, strict=True) if number is not None}
    waiting: list[tuple[int | None, Entry]] = []
    last, alive = 0, True
    for key, entry in records:
        if (number := found.get(key)) is not None:
            yield from ((number if own is None else own, one) for own, one in waiting)
            waiting.clear()
            yield number, entry
            last, alive = number, True
            continue
        line, kind = lines.get(key), _kind(entry[1])
        if kind == "reasoning":
            if line is not None and (thought := _of(line, found)) is not None:
                waiting.append((thought, entry))
        elif line is not None and line.prompt:  # it was taken back, with all that follows
            alive = False
            waiting.clear()
        elif alive and kind not in _OF_THE_WHOLE:
            told = kind == "message" and entry[1]["payload"].get("role") != "assistant"
            waiting.append((None if kind in _BEGINS or told else last, entry))
    yield from ((last if own is None else own, one) for own, one in waiting)


def _of(line: TranscriptTurn, found: dict[str, int]) -> int | None:
    """The turn that a thought led to."""
    named = (found.get(one.removeprefix("turn:")) for one in line.repeats if one.startswith("turn:"))
    return next((number for number in named if number is not None), None)


def _kind(record: Record) -> str:
    """What a record is: an item's own type or the event's, else the record's."""
    kind = record["type"]
    return str(record["payload"].get("type") or kind) if kind in ("response_item", "event_msg") else kind


#: What a header says of how its own file is kept and where it is from.
OF_ITS_FILE = ("history_mode", "history_base", "forked_from_ordinal_exclusive", "parent_thread_id", "context_window")

#: What Codex wants of each header, though the oldest have nothing of it: without them it does not load the session.
OF_EACH_HEADER = {"originator": "smart-fork", "cli_version": "0.0.0"}

#: What a compaction leaves that the model alone can read.
COMPACTIONS = ("compaction", "compaction_summary")


class CodexCopy(Copy):
    """Records of a session in a new one, in the form of before copy-on-write."""

    def own(self, kind: str, payload: Record) -> Record:
        """A record of the copy's own."""
        moment = self._new.now.astimezone().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"timestamp": moment, "type": kind, "payload": payload}

    def last(self) -> Iterator[bytes]:
        """The copy's name, where it gets one."""
        if self._new.title:
            named = {"type": "thread_name_updated", "thread_id": self._new.id, "thread_name": self._new.title}
            yield orjson.dumps(self.own("event_msg", named))

    def header(self) -> Iterator[bytes]:
        """The copy's first record: what that of the source says, as far as it is true of the copy."""
        lines = LineReader(self._source.source_path)
        entries = filter(None, (enveloped(line.source, line.record) for line in lines))
        spelled, first = next(
            (entry for entry in entries if entry[1]["type"] == "session_meta"), (b"", {"payload": {}})
        )
        meta: Record = first["payload"]
        header = {name: value for name, value in meta.items() if name not in OF_ITS_FILE}
        for name, value in OF_EACH_HEADER.items():
            header.setdefault(name, value)
        made = self.own("session_meta", header)
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
        """See `Copy.up_to`."""
        return kept(self._source.source_path, self._source.turns[end].id)

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        """See `Copy.record`. Headers are other files'."""
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
        """See `Copy.summary`. By its own record the agent would forget what stands above."""
        moment = entry[1].get("timestamp", "")
        for item in _left(entry[1]["payload"]):
            yield orjson.dumps({"timestamp": moment, "type": "response_item", "payload": item})

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        """See `Copy.line`."""
        yield orjson.dumps({
            "timestamp": before[1].get("timestamp", ""), "type": "response_item", "payload": _added(text),
        })  # fmt: skip


class CodexCopier(Copier):
    """Copies of sessions of Codex."""

    copies = CodexCopy

    def place(self, source: Path, new: NewSession) -> Path:
        """It files its sessions by day."""
        name = f"rollout-{new.now:%Y-%m-%dT%H-%M-%S}-{new.id}.jsonl"
        return HOME.folder() / "sessions" / f"{new.now:%Y/%m/%d}" / name

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        return CodexCopy(self, session, new, filter(None, starmap(enveloped, records)))

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """See `Copier.live`."""
        for number, entry in remembered(session, through_parents(session.source_path)):
            yield self.sized(number, entry, sums_up=entry[1]["type"] == "compacted")

    def size(self, record: Record) -> int:
        """See `Copier.size`."""
        kind, payload = record["type"], record["payload"]
        if kind == "compacted":
            return sum(map(characters, _left(payload)))
        return characters(payload) if kind == "response_item" and not _is_instruction(payload) else 0

    def short(self, record: Record) -> Record:
        """See `Copier.short`."""
        payload = record["payload"]
        if payload.get("type") not in OUTPUTS or "output" not in payload:
            return record
        return record | {"payload": payload | {"output": shortened(payload["output"], "input_text")}}


def _is_instruction(item: Record) -> bool:
    """Whether the program told it the model by itself, as it tells each session."""
    if item.get("type") != "message" or item.get("role") == "assistant":
        return False
    said = texts_of(list_in(item.get("content")))
    return item.get("role") != "user" or (bool(said) and not strip_boilerplate(said))


def _added(text: str) -> Record:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": aside(text)}]}


def _left(payload: Record) -> list[Record]:
    """What a compaction has left beside what was said: a text, or what its maker alone can read."""
    if isinstance(said := payload.get("message"), str) and said.strip():
        return [_added(said)]
    return [one for one in dicts_in(payload.get("replacement_history")) if one.get("type") in COMPACTIONS][-1:]


def kept(path: Path, last: str | None) -> Iterator[Entry]:
    """The records of a session and of those that it was forked from, up to turn `last` and what closes it.

    Raises:
        NotFound: a session that this one was forked from is gone.
    """
    past = False
    for key, entry in through_parents(path):
        record = entry[1]
        payload = record["payload"]
        if past and key != last and _begins_a_turn(record["type"], payload):
            return
        past = past or key == last
        yield entry
        if past and payload.get("type") == "task_complete":
            return


def through_parents(path: Path) -> Iterator[tuple[str, Entry]]:
    """The records of a session from all rollouts of its history, with the ids that the reader gives their turns.

    Raises:
        NotFound: a rollout of its history is gone.
    """
    for line in lines_of(whole(path)):
        if (entry := enveloped(line.source, line.record)) is not None:
            yield str(ordinal_of(line)), entry


def _begins_a_turn(kind: str, payload: Record) -> bool:
    said = payload.get("type")
    if kind == "response_item":
        return said != "message" or payload.get("role") != "assistant"
    return kind in ("turn_context", "compacted") or said in ("task_started", "user_message", "thread_rolled_back")


def to_legacy(payload: Record) -> None:
    """What is shown on the screen of a resumed session: newer versions tell it by other events than this form has."""
    item = payload.get("item")
    if payload.get("type") != "item_completed" or not isinstance(item, dict):
        return
    kind = {"UserMessage": "user_message", "AgentMessage": "agent_message"}.get(str(item.get("type")))
    parts = item.get("content")
    if kind and isinstance(parts, list):
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        payload.clear()
        payload |= {"type": kind, "message": "".join(texts)}


def enveloped(source: bytes, record: Record) -> Entry | None:
    """A record in today's form; the oldest rollouts have bare items. `None` where it is nothing of the conversation."""
    if isinstance(record.get("payload"), dict) and isinstance(record.get("type"), str):
        return source, record
    kind = "response_item" if isinstance(record.get("type"), str) else "session_meta"
    if kind == "session_meta" and ("record_type" in record or not isinstance(record.get("id"), str)):
        return None
    envelope = {"timestamp": record.get("timestamp", ""), "type": kind}
    spelled = orjson.dumps(envelope).removesuffix(b"}") + b',"payload":' + source.strip() + b"}"
    return spelled, envelope | {"payload": record}
