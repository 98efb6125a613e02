"""Codex's records: each has one message, tool call, tool result or thought, and some are written twice."""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from indexer.json_values import dicts_in, json_in, list_in
from indexer.lazy_compilation import late
from indexer.masking import NOTHING, Masked
from indexer.transcripts.actions import error_note, status_and_body
from indexer.transcripts.lines import Line, LineReader
from indexer.transcripts.model import GivenBack, Item, Session, Turn, UsedTool
from indexer.transcripts.texts import strip_boilerplate
from smart_fork.agents.decoders import (
    CopyCodec,
    JsonAnswers,
    Record,
    aside,
    characters,
    in_paragraphs,
    shortened,
    texts_of,
)

#: How Codex begins the answer of a call that it could not carry out.
_REFUSED = ("exec_command failed for", "failed in sandbox", "error:", "apply_patch verification failed")


class ForkBase(NamedTuple):
    """The rollout (log file) that a fork continues. `end` is the number of its first record that the fork lacks.

    `rollout_id` is the session's id for the first rollout of a session. A rollout that a rewind (return to an earlier
    prompt) began has an id of its own. If the header is damaged, the id is "" and `end` is `None`.
    """

    rollout_id: str
    end: int | None


def failure_of(output: str) -> Masked:
    """Return a note, masked, about the failure that a tool's output reports; empty if the call did not fail."""
    status, _ = status_and_body(output)
    failed = output.startswith(_REFUSED) if status is None else status != 0
    return error_note(output) if failed else NOTHING


def base_of(header: Mapping[str, Any]) -> ForkBase | None:
    """Return the rollout that a rollout with `header` continues; `None` if the rollout has all its records itself."""
    base = header.get("history_base")
    if not isinstance(base, dict):
        return None
    named, end = base.get("thread_id"), base.get("end_ordinal_exclusive")
    return ForkBase(named if isinstance(named, str) else "", end if type(end) is int else None)


def payload_of(record: Record) -> tuple[str, Record]:
    """Return a record's fields ``type`` and ``payload``. In the oldest logs the record itself is the payload."""
    payload = record.get("payload")
    if isinstance(payload, dict):
        return str(record.get("type")), payload
    return ("response_item" if isinstance(record.get("type"), str) else "session_meta"), record


#: The kinds of items that are tool calls, and those that are tool results.
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output")
#: The bytes that a record with thoughts contains.
_REASONS = b'"reasoning"'
_IMAGES = ("input_image", "image_generation_call")


#: The kinds of items of a compaction that only the model can read.
COMPACTIONS = ("compaction", "compaction_summary")


class CodexAnswers(JsonAnswers):
    """The parser of a person's answers to Codex's questions."""

    asking = late(r"(?i)request_user_input")


class CodexCodec(CopyCodec):
    """The decoder of Codex's records. For a file edit, the change is the patch in the tool call's input."""

    starting = ("spawn_agent",)
    shell, not_run = None, ("failed in sandbox", "exec_command failed for", "exec command rejected")
    answers = CodexAnswers()

    def decode(self, record: Record) -> Item:
        """Return the text, tool call, tool result or thoughts in a record; for encrypted thoughts, their summary."""
        item = payload_of(record)[1]
        kind, call_id = item.get("type"), str(item.get("call_id") or item.get("id") or "")
        if kind in CALLS:
            return Item(calls=(UsedTool(call_id, str(item.get("name") or kind), arguments_of(item)),))
        content, output = dicts_in(item.get("content")), item.get("output")
        if isinstance(output, dict):
            output = output.get("content")
        images = sum(part.get("type") in _IMAGES for part in (item, *content, *dicts_in(output)))
        if kind in OUTPUTS:
            text = unwrapped(text_of(output))
            return Item(results=(GivenBack(call_id, text, bool(failure_of(text))),), images=images)
        if kind == "reasoning":
            parts = (*dicts_in(item.get("summary")), *content)
            return Item(thoughts=(in_paragraphs(part.get("text") for part in parts),))
        return Item(text_of(item.get("content")) if kind == "message" else "", images=images)

    def thoughts_between(self, session: Session) -> Mapping[int, str]:
        ordinals = [int(turn.id) for turn in session.turns]
        found: dict[int, list[str]] = {}
        try:
            for line in LineReader(session.source_path):
                if _REASONS in line.source and (text := in_paragraphs(self.decode(line.record).thoughts)):
                    found.setdefault(bisect_left(ordinals, ordinal_of(line)), []).append(text)
        except OSError:  # the log is gone since, or was a copy that is put away again
            return {}
        return {number: in_paragraphs(texts) for number, texts in found.items() if number < len(ordinals)}

    def size(self, record: Record) -> int:
        kind, payload = record["type"], record["payload"]
        if kind == "compacted":
            return sum(map(characters, compaction_items(payload)))
        return characters(payload) if kind == "response_item" and not _is_instruction(payload) else 0

    def short(self, record: Record) -> Record:
        payload = record["payload"]
        if payload.get("type") not in OUTPUTS or "output" not in payload:
            return record
        return record | {"payload": payload | {"output": shortened(payload["output"], "input_text")}}


CODEC = CodexCodec()


def arguments_of(item: dict[str, Any]) -> dict[str, Any] | str:
    """Return the input of a tool call: an object (decoded if it is JSON text), or a text such as a patch or script."""
    given = item.get("arguments", item.get("input", item.get("action")))
    if isinstance(given, str) and given.startswith("{"):
        found = json_in(given)
        return found if isinstance(found, dict) else given
    return given if isinstance(given, dict | str) else ""


def text_of(content: object) -> str:
    """Return the text of an item's content."""
    return texts_of(content, "\n\n")


def unwrapped(output: str) -> str:
    """Return the output of a shell call as plain text: Codex up to 0.58 logged JSON with exit code and output."""
    if not output.startswith('{"output"'):
        return output
    try:
        value = orjson.loads(output)
        return f"exit_code: {value['metadata']['exit_code']}\n{value['output']}"
    except (ValueError, KeyError, TypeError):
        return output


def ordinal_of(line: Line) -> int:
    """Return a record's number in its thread; in files without such numbers, the line's number."""
    ordinal = line.record.get("ordinal")
    return ordinal if type(ordinal) is int else line.number


def without_second_copies(turns: list[Turn]) -> tuple[Turn, ...]:
    """Return the turns without second copies: Codex writes each message as an item (model input) and an event.

    For prompts, keep the events, which have no injected text; after the last event keep the items, since newer versions
    write no events. For answers, keep the items if there are any.
    """
    items = any(turn.role == "assistant" and turn.group == Turn.ITEM for turn in turns)
    second = _second_copies(turns)
    return tuple(
        turn
        for i, turn in enumerate(turns)
        if not turn.group or (i not in second if turn.prompt else turn.group == Turn.ITEM or not items)
    )


def _second_copies(turns: list[Turn]) -> set[int]:
    """Return the positions of prompts that are second copies, one of each pair of an item and an event."""
    items: defaultdict[str, list[int]] = defaultdict(list)
    events: defaultdict[str, list[int]] = defaultdict(list)
    for i, turn in enumerate(turns):
        if turn.prompt:
            (events if turn.group == Turn.EVENT else items)[turn.text].append(i)
    second: set[int] = set()
    alone_items, alone_events = [], set()
    for text in {**items, **events}:
        one = items[text]
        for event in events[text]:
            if not one:
                alone_events.add(event)
                continue
            item = one.pop(_nearest(one, event))
            late = any(not turn.prompt for turn in turns[item:event])
            second.add(event if late else item)
        alone_items += one
    with_event = [i for some in events.values() for i in some]
    first, last = min(with_event, default=0), max(with_event, default=-1)
    while first > 0 and turns[first - 1].prompt:
        first -= 1
    for item in sorted(alone_items):
        # With injected text around it an item is not its event word for word. From the first prompt with an event to
        # the last one each has one; what stands before is of another version, or of a session merged with this one.
        beside = next((event for event in _neighboring_prompts(turns, item) if event in alone_events), None)
        if first <= item < last or beside is not None:
            second.add(item)
            alone_events.discard(-1 if beside is None else beside)
    return second


def _nearest(places: list[int], place: int) -> int:
    """Return the index of the number in the sorted `places` that is nearest to `place`."""
    after = bisect(places, place)
    near = range(max(after - 1, 0), min(after + 1, len(places)))
    return min(near, key=lambda at: abs(places[at] - place))


def _neighboring_prompts(turns: list[Turn], place: int) -> Iterator[int]:
    """Yield the positions of the prompts before and after the one at `place`, up to the next turn that is no prompt."""
    for step in (-1, 1):
        i = place + step
        while 0 <= i < len(turns) and turns[i].prompt:
            yield i
            i += step


def roll_back(turns: list[Turn], prompts: int) -> int:
    """Remove the last `prompts` prompts from `turns`, with all after them. Return how many were not in `turns`."""
    asked = {id(turn) for turn in without_second_copies(turns) if turn.prompt}
    while prompts and asked:
        turn = turns.pop()
        if id(turn) in asked:
            asked.remove(id(turn))
            prompts -= 1
            # Its other copy goes too, but not what was said twice.
            while turns and turns[-1].prompt and turns[-1].text == turn.text and id(turns[-1]) not in asked:
                turns.pop()
    return prompts


def _is_instruction(item: Record) -> bool:
    """Return True if an item is a message that Codex itself sends to the model in every session."""
    if item.get("type") != "message" or item.get("role") == "assistant":
        return False
    said = texts_of(list_in(item.get("content")))
    return item.get("role") != "user" or (bool(said) and not strip_boilerplate(said))


def note_item(text: str) -> Record:
    """Return `text` as an item of the user's role that is marked as a note of smart-fork."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": aside(text)}]}


def compaction_items(payload: Record) -> list[Record]:
    """Return the items that give the model a compaction's summary: a message with its text, or encrypted data."""
    if isinstance(said := payload.get("message"), str) and said.strip():
        return [note_item(said)]
    return [one for one in dicts_in(payload.get("replacement_history")) if one.get("type") in COMPACTIONS][-1:]
