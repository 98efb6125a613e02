"""What a reader remembers of a log between two readings, as bytes that can be kept in the index."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from sys import intern
from typing import Any, TypeGuard

import orjson

from indexer.transcripts.model import ToolCall, ToolResult, Turn

#: A reader whose fold changes raises this, so that kept states of the old form are not used.
READER_VERSION = 4

#: Turns encoded together: the state of a long log is never whole in memory as JSON.
_BATCH = 1000
#: More tokens, messages or records than anything has: a larger number is no count, and would not fit the index.
_MAX_COUNT = 1 << 40


def pack(facts: Mapping[str, Any], turns: Iterable[Turn]) -> bytes:
    """`facts` (JSON values only) and `turns`, compressed."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as file:
        file.write(orjson.dumps([READER_VERSION, facts], option=orjson.OPT_APPEND_NEWLINE))
        rows = map(turn_to_row, turns)
        while batch := list(islice(rows, _BATCH)):
            file.write(orjson.dumps(batch, option=orjson.OPT_APPEND_NEWLINE))
    return packed.getvalue()


def unpack(data: bytes) -> tuple[dict[str, Any], list[Turn]] | None:
    """Facts and turns, or `None` where they were written by another version of the readers or are damaged."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            version, facts = orjson.loads(file.readline())
            if version != READER_VERSION:
                return None
            return facts, [turn_from_row(row) for line in file for row in orjson.loads(line)]
    except (OSError, EOFError, zlib.error, ValueError, TypeError):
        return None


def turn_to_row(turn: Turn) -> list[Any]:
    """A turn without its raw bytes as JSON values."""
    return [
        turn.id, turn.parent_id, turn.role, turn.timestamp, turn.text, turn.token_est,
        [[call.id, call.name, call.action] for call in turn.tool_calls],
        [[result.tool_use_id, result.is_error, result.note] for result in turn.tool_results],
        turn.prompt, turn.group, turn.loaded,
    ]  # fmt: skip


def turn_from_row(row: list[Any]) -> Turn:
    """The reverse of `turn_to_row`. Ids and names come up again and again: one copy of each is kept."""
    id_, parent, role, timestamp, text, tokens, calls, results, prompt, group, loaded = row
    return Turn(
        intern(id_), None if parent is None else intern(parent), role, timestamp, text, tokens,
        tuple(ToolCall(intern(call), intern(name), action) for call, name, action in calls),
        tuple(ToolResult(intern(call), failed, note) for call, failed, note in results),
        prompt, intern(group), loaded=loaded,
    )  # fmt: skip


def count(value: object) -> int:
    """A number of things, as a log gives it; 0 where it is none."""
    return value if type(value) is int and 0 < value < _MAX_COUNT else 0


def is_path(value: object) -> TypeGuard[str]:
    """Whether a log's value can be a directory: the system accepts no path with a NUL."""
    return isinstance(value, str) and value != "" and "\0" not in value


def utc(value: object) -> str:
    """A timestamp of any form seen in logs as ISO 8601 in UTC with ``Z``; empty where it is none (F-083, F-146).

    A time without a zone is taken as UTC, numbers as seconds or milliseconds since 1970.
    """
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            if len(value) == 24 and value[7] == "-" and value[10] == "T" and value[19] == "." and value[23] == "Z":
                return value  # the common form
        elif isinstance(value, int | float) and not isinstance(value, bool):
            moment = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        else:
            return ""
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
