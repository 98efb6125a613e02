"""The records of a rollout (Codex's log) that are sent to the model, with their turns and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import orjson

from indexer.json_values import text_in
from indexer.transcripts.lines import Line, is_long
from indexer.transcripts.model import Item, RecordSize, Role, Turn
from indexer.transcripts.texts import strip_boilerplate
from smart_fork.agents.codex.codec import CALLS, CODEC, OUTPUTS, ordinal_of, payload_of
from smart_fork.agents.copier import Entry
from smart_fork.agents.decoders import Record, texts_of
from smart_fork.agents.excision import titles
from smart_fork.agents.excision.cutter import head, turn_of, with_sources
from smart_fork.agents.excision.titles import mark
from smart_fork.agents.excision.transcript import LinePlace, Transcript, TranscriptTurn

#: The kinds of records that a cut keeps, without the texts that they repeat.
_KINDS: Mapping[str, Mapping[str, Any]] = {
    "task_complete": {"repeating": True},
    "compacted": {"repeating": True, "compacts": True},
}
#: The kinds of records at the beginning of a turn; they belong to the records after them.
_BEGINS = ("task_started", "turn_context", "world_state")
#: The kinds of records about the whole session, which would be wrong in a part of it.
_OF_THE_WHOLE = ("token_count", "thread_rolled_back", "thread_name_updated", "context_compacted", "session_meta")


class SeenRecord(NamedTuple):
    """A line of a rollout (Codex's log): its turn, and texts that connect it with lines of the same message.

    `begins` is the beginning of the line's own message, `repeats` that of the message which another line has, too.
    """

    turn: TranscriptTurn
    is_thought: bool = False
    begins: str | None = None
    repeats: str = ""

    @classmethod
    def of(cls, number: int, record: Record, kept: LinePlace | bytes = b"", **marks: bool) -> Self:
        """Return line `number` with its record decoded. `kept` and `marks` are fields of its `TranscriptTurn`."""
        kind, payload = payload_of(record)
        turn = _turn(number, record, kept, **marks)
        is_thought = payload.get("type") == "reasoning"
        if turn.role in ("user", "assistant") and not turn.tool_calls:
            return cls(turn, is_thought, head(strip_boilerplate(texts_of(payload.get("content")))))
        copy = _repeated(kind, payload)
        return cls(turn, is_thought, None, head(strip_boilerplate(copy)) if copy else "")


def linked_turns(seen: Sequence[SeenRecord]) -> tuple[TranscriptTurn, ...]:
    """Return the turns of the lines `seen`. A turn that repeats a message names the nearest turn with it in `repeats`.

    A thought names the next answer there: cutting the answer removes the thought, since no API accepts thoughts alone.
    """
    turns = [one.turn for one in seen]
    thoughts = list[int]()
    for position, one in enumerate(seen):
        if one.is_thought:
            thoughts.append(position)
        elif one.turn.role == "assistant":
            for index in thoughts:
                turns[index] = replace(turns[index], repeats=(f"turn:{one.turn.id}",))
            thoughts.clear()
    heads = {one.turn.id: one.begins for one in seen if one.begins is not None}
    return with_sources(turns, heads, {one.turn.id: one.repeats for one in seen if one.repeats})


def with_event_numbers(turns: Sequence[TranscriptTurn], numbers: Sequence[int | None]) -> Sequence[int | None]:
    """Return the turns' message numbers. An item (model input) and its event (for the screen) get the same number."""
    found = list(numbers)
    at = {turn.id: position for position, turn in enumerate(turns)}
    for position, turn in enumerate(turns):
        item = at.get(turn.told_again)
        if item is not None and found[item] is None:
            found[item] = found[position]
        elif item is not None and found[position] is None:
            found[position] = found[item]
    return found


def _turn(number: int, record: Record, kept: LinePlace | bytes, **marks: bool) -> TranscriptTurn:
    kind, payload = payload_of(record)
    ordinal = record.get("ordinal")
    item = str(payload.get("type")) if kind == "response_item" else ""
    said = texts_of(payload.get("content")) if item == "message" else ""
    role = _role(item, payload)
    types = item or " ".join(word for word in (kind, payload.get("type")) if isinstance(word, str))
    return turn_of(
        str(ordinal if isinstance(ordinal, int) else number) if record else f"line-{number}",
        role,
        said,
        CODEC.decode(payload) if item else Item(),
        prompt=role == "user" and bool(strip_boilerplate(said)),
        note=_repeated(kind, payload) or f"[{types}]",
        says=(f"item:{payload['id']}",) if item and isinstance(payload.get("id"), str) else (),
        timestamp=str(record.get("timestamp") or ""),
        kept=kept,
        meta=_KINDS.get(str(kind if kind == "compacted" else payload.get("type")), {}),
        repeats=_keys_repeated(payload) if kind == "event_msg" else (),
        key=mark(orjson.dumps(payload)) if item else "",
        **marks,
    )


def _role(item: str, payload: dict[str, Any]) -> Role:
    if item == "message":
        role = payload.get("role")
        return role if role in ("user", "assistant") else "system"
    if item in CALLS or item in ("reasoning", "web_search_call"):
        return "assistant"
    return "tool" if item in OUTPUTS else "system"


def _repeated(kind: str, payload: dict[str, Any]) -> str:
    if kind != "event_msg" or payload.get("type") not in ("user_message", "agent_message", "item_completed"):
        return ""
    item = payload.get("item")
    if isinstance(item, dict):
        return texts_of(item.get("content")) or str(item.get("text") or "")
    return text_in(payload.get("message") or payload.get("text"))


def _keys_repeated(payload: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys of the records that an event repeats: a call, an item, or a prompt quoted by a session's name."""
    item = payload.get("item")
    named = [payload.get("call_id"), payload.get("callId"), item.get("id") if isinstance(item, dict) else None]
    keys = (key for one in named if isinstance(one, str) for key in (f"call:{one}", f"item:{one}"))
    return (*keys, *titles.mark_of_title(payload.get("thread_name")))


def sent_records(
    turns: Sequence[TranscriptTurn], shown: Sequence[Turn], records: Iterable[tuple[str, Entry]]
) -> Iterator[tuple[int, Entry]]:
    """Yield (turn's number, record) for the records that Codex still sends to the model, without rolled-back ones.

    `turns` are the turns of all lines, `shown` the session's turns. Each of `records` comes with the id of its turn. A
    thought gets the number of the answer after it, a message's second copy the number of the message, and a note of the
    program the number of the next turn.
    """
    lines = {line.id: line for line in turns}
    places = {turn.id: number for number, turn in enumerate(shown)}
    numbers = with_event_numbers(tuple(lines.values()), [places.get(one) for one in lines])
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
            if line is not None and (thought := _answer_number(line, found)) is not None:
                waiting.append((thought, entry))
        elif line is not None and line.prompt:  # it was taken back, with all that follows
            alive = False
            waiting.clear()
        elif alive and kind not in _OF_THE_WHOLE:
            told = kind == "message" and entry[1]["payload"].get("role") != "assistant"
            waiting.append((None if kind in _BEGINS or told else last, entry))
    yield from ((last if own is None else own, one) for own, one in waiting)


def _answer_number(line: TranscriptTurn, found: dict[str, int]) -> int | None:
    """Return the number of the answer after a thought; `None` if the session lacks this answer."""
    named = (found.get(one.removeprefix("turn:")) for one in line.repeats if one.startswith("turn:"))
    return next((number for number in named if number is not None), None)


def _kind(record: Record) -> str:
    """Return a record's kind: the item's or event's own type, else the record's."""
    kind = record["type"]
    return str(record["payload"].get("type") or kind) if kind in ("response_item", "event_msg") else kind


class RecordSizes:
    """Collects the sizes of a rollout's records, line by line, without keeping the records."""

    def __init__(self) -> None:
        self._seen: list[SeenRecord] = []
        self._records: list[tuple[str, Entry]] = []
        self._last = 0

    def add(self, line: Line) -> None:
        """Add the record on the next line of the rollout."""
        if line.number != self._last:
            with Transcript.only_prompts_previewed():
                self._seen.append(SeenRecord.of(line.number, line.record))
        self._last = line.number
        if entry := enveloped(line.source, line.record):
            source, record = entry
            characters, sums_up = CODEC.size(record), record["type"] == "compacted"
            whole = len(source) if is_long(source) and not sums_up else 0
            size = RecordSize(max(characters, whole), CODEC.size(CODEC.short(record)), sums_up)
            payload = {name: record["payload"].get(name) for name in ("type", "role")}
            stub = {"type": record["type"], "payload": payload, "size": size}
            self._records.append((str(ordinal_of(line)), (b"", stub)))

    def prepend(self, other: RecordSizes, end: int) -> None:
        """Put the records of `other`, the rollout that this one continues, with numbers below `end` before its own."""
        self._seen = [one for one in other._seen if not one.turn.id.isdigit() or int(one.turn.id) < end] + self._seen
        self._records = [one for one in other._records if int(one[0]) < end] + self._records

    def sizes(self, shown: Sequence[Turn]) -> Iterator[tuple[int, RecordSize]]:
        """Yield (turn's number, size) for each record that is still sent to the model."""
        for number, (_, stub) in sent_records(linked_turns(self._seen), shown, self._records):
            yield number, stub["size"]


def enveloped(source: bytes, record: Record) -> Entry | None:
    """Return (bytes, record with ``timestamp``, ``type``, ``payload``); `None` for a record outside the conversation.

    In the oldest logs, the record itself becomes the ``payload``.
    """
    if isinstance(record.get("payload"), dict) and isinstance(record.get("type"), str):
        return source, record
    kind = "response_item" if isinstance(record.get("type"), str) else "session_meta"
    if kind == "session_meta" and ("record_type" in record or not isinstance(record.get("id"), str)):
        return None
    envelope = {"timestamp": record.get("timestamp", ""), "type": kind}
    spelled = orjson.dumps(envelope).removesuffix(b"}") + b',"payload":' + source.strip() + b"}"
    return spelled, envelope | {"payload": record}
