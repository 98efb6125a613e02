"""Codex's records as items: each has one message, call, result or thought."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from indexer.lazy import late
from indexer.transcripts.actions import failure_of
from indexer.transcripts.lines import Line, LineReader
from indexer.transcripts.model import GivenBack, Item, Session, UsedTool
from indexer.values import dicts_in, json_in
from smart_fork.agents.answers import JsonAnswers
from smart_fork.agents.codec import Codec, Record, in_paragraphs, texts_of


class ForkBase(NamedTuple):
    """A rollout, and the number of its first record that the fork has no more; empty and `None` where a log is odd.

    The id is its session's, or the rollout's own after a rewind.
    """

    rollout_id: str
    end: int | None


def base_of(header: Mapping[str, Any]) -> ForkBase | None:
    """Return the fork base in a header; `None` if the file has all records itself."""
    base = header.get("history_base")
    if not isinstance(base, dict):
        return None
    named, end = base.get("thread_id"), base.get("end_ordinal_exclusive")
    return ForkBase(named if isinstance(named, str) else "", end if type(end) is int else None)


def payload_of(record: Record) -> tuple[str, Record]:
    """The kind of a record and what it says; the oldest rollouts have no envelope."""
    payload = record.get("payload")
    if isinstance(payload, dict):
        return str(record.get("type")), payload
    return ("response_item" if isinstance(record.get("type"), str) else "session_meta"), record


#: The kinds of items that are calls of tools, and what came back from them.
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output")
#: The bytes of a record that tells of thoughts.
_REASONS = b'"reasoning"'
_IMAGES = ("input_image", "image_generation_call")


class CodexAnswers(JsonAnswers):
    """See `Answers`."""

    asking = late(r"(?i)request_user_input")


class CodexCodec(Codec):
    """See `Codec`. What an edit changes is the patch that it was given."""

    starting = ("spawn_agent",)
    shell, not_run = None, ("failed in sandbox", "exec_command failed for", "exec command rejected")
    answers = CodexAnswers()

    def decode(self, record: Record) -> Item:
        """See `Codec.decode`. What is encrypted is nobody's to read: of a thought there may be a summary."""
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
        """See `Codec.thoughts_between`. They are of its own log: a fork has its parent's records without thoughts."""
        ordinals = [int(turn.id) for turn in session.turns]
        found: dict[int, list[str]] = {}
        try:
            for line in LineReader(session.source_path):
                if _REASONS in line.source and (text := in_paragraphs(self.decode(line.record).thoughts)):
                    found.setdefault(bisect_left(ordinals, ordinal_of(line)), []).append(text)
        except OSError:  # the log is gone since, or was a copy that is put away again
            return {}
        return {number: in_paragraphs(texts) for number, texts in found.items() if number < len(ordinals)}


CODEC = CodexCodec()


def arguments_of(item: dict[str, Any]) -> dict[str, Any] | str:
    """Return a tool's input: usually JSON in a text, or a patch or script."""
    given = item.get("arguments", item.get("input", item.get("action")))
    if isinstance(given, str) and given.startswith("{"):
        found = json_in(given)
        return found if isinstance(found, dict) else given
    return given if isinstance(given, dict | str) else ""


def text_of(content: object) -> str:
    """Return the text of an item's content."""
    return texts_of(content, "\n\n")


def unwrapped(output: str) -> str:
    """Return a shell's output. Up to 0.58 it was a JSON text with the status in front."""
    if not output.startswith('{"output"'):
        return output
    try:
        value = orjson.loads(output)
        return f"exit_code: {value['metadata']['exit_code']}\n{value['output']}"
    except (ValueError, KeyError, TypeError):
        return output


def ordinal_of(line: Line) -> int:
    """A record's number in its thread; in files without them, the line's."""
    ordinal = line.record.get("ordinal")
    return ordinal if type(ordinal) is int else line.number
