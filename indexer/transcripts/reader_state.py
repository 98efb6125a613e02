"""Serialization of the state with which a reader continues a log, as bytes that the index stores."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from sys import intern
from typing import Any, NamedTuple, TypeGuard

import orjson

from indexer.masking import Masked, mask_once
from indexer.transcripts.model import Proof, ToolCall, ToolResult, Turn

#: Increase this when a reader computes something else from a log. States of the old version are then not used.
READER_VERSION = 28
#: Turns packed together. The state of a long log is never whole in memory as JSON, and only the last turns are new.
_BATCH = 256
#: Larger numbers of tokens, messages or records are no plausible counts, and would not fit the index.
_MAX_COUNT = 1 << 40
#: The first time that is plausible in a log, in seconds since 1970, and the first one that no longer is.
_FIRST, _END = 946_684_800, 4_102_444_800
_CENTURY = "2000"
_NUMBER = re.compile(r"\d{10,19}(?:\.\d{1,9})?", re.ASCII)
#: The text packed in place of a path that contains a secret. It is no file that the session edited.
_UNFIT = "\n"
#: Maximum size of cached turns in packed form: the growing logs of some dozen sessions. As objects, they take ten times
#: as much.
KEPT_BYTES = 4 << 20


class WarmTurns(NamedTuple):
    """Consecutive turns of a log, as objects and in their packed (serialized and compressed) form."""

    turns: tuple[Turn, ...]
    packed: bytes


class _Log(NamedTuple):
    digest: bytes
    batches: tuple[WarmTurns, ...]


class Warm:
    """A thread-safe cache of turns with their packed (serialized and compressed) form.

    It only saves time: a missing entry is computed again, with an equal result.
    """

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._size = 0
        self._lock = threading.Lock()
        #: Cached logs by the `id` of their first turn, which lives as long as the entry.
        self._logs: OrderedDict[int, _Log] = OrderedDict()

    def remember(self, packed: bytes, batches: Sequence[WarmTurns]) -> None:
        """Cache the `batches` of turns that the state `packed` contains, in place of the log's earlier batches."""
        if not batches:
            return
        first = id(batches[0].turns[0])
        with self._lock:
            self._let_go(first)
            self._logs[first] = _Log(_digest(packed), tuple(batches))
            self._size += _size(batches)
            while self._size > self._most:
                self._let_go(next(iter(self._logs)))

    def recall(self, packed: bytes) -> list[Turn] | None:
        """Return the turns in the state `packed`, or `None` if they are not cached."""
        digest = _digest(packed)
        with self._lock:
            found = next((log for log in self._logs.values() if log.digest == digest), None)
        return None if found is None else [turn for batch in found.batches for turn in batch.turns]

    def batches(self, first: Turn) -> tuple[WarmTurns, ...]:
        """Return the cached batches of the log that begins with the turn `first`, if any."""
        with self._lock:
            log = self._logs.get(id(first))
        return log.batches if log is not None else ()

    def _let_go(self, first: int) -> None:
        log = self._logs.pop(first, None)
        if log is not None:
            self._size -= _size(log.batches)


def _digest(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=16).digest()


def _size(batches: Sequence[WarmTurns]) -> int:
    return sum(len(batch.packed) for batch in batches)


_warm = Warm()


def pack(facts: Mapping[str, Any], names: Mapping[str, Any], turns: Sequence[Turn]) -> bytes:
    """Return a reader's state as compressed bytes: `facts` (JSON values), `names` without secrets, and masked `turns`.

    A fact with a secret, such as the name of a directory, cannot be masked. Return b"" then, so that the log is read
    from its start each time.
    """
    if not _is_masked(facts):
        return b""
    known = _warm.batches(turns[0]) if turns else ()
    batches = []
    for number, start in enumerate(range(0, len(turns), _BATCH)):
        batch = tuple(turns[start : start + _BATCH])
        before = known[number] if number < len(known) else None
        same = before is not None and before.turns == batch
        batches.append(
            before if before is not None and same else WarmTurns(batch, _member(list(map(turn_to_row, batch))))
        )
    packed = b"".join([_member([READER_VERSION, {**facts, **names}]), *(batch.packed for batch in batches)])
    _warm.remember(packed, batches)
    return packed


def _is_masked(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_masked, chain(value, value.values())))
    return all(map(_is_masked, value)) if isinstance(value, list | tuple) else not isinstance(value, str) or _fit(value)


def _fit(text: str) -> bool:
    return mask_once(text) == text


def _member(value: object) -> bytes:
    return gzip.compress(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE), compresslevel=1, mtime=0)


def unpack(data: bytes) -> tuple[dict[str, Any], list[Turn]] | None:
    """Return the facts and turns that `pack` stored; `None` if they are damaged, or of another reader version."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            version, facts = orjson.loads(file.readline())
            if version != READER_VERSION:
                return None
            turns = _warm.recall(data)
            return facts, [
                turn_from_row(row) for line in file for row in orjson.loads(line)
            ] if turns is None else turns
    except (OSError, EOFError, zlib.error, ValueError, TypeError):
        return None


def turn_to_row(turn: Turn) -> list[Any]:
    """Return a turn as a list of JSON values, masked and without its raw bytes."""
    return [
        turn.id, turn.parent_id, turn.role, turn.timestamp, mask_once(turn.text), turn.token_est,
        [
            [
                call.id, mask_once(call.name), call.action, call.ours, _paths(call.edits), _paths(call.reads),
                [one.hex() for one in call.lines], _paths(call.places),
            ]
            for call in turn.tool_calls
        ],
        [
            [one.tool_use_id, one.is_error, one.note, one.proof, one.errors.hex(), one.words, one.commit]
            for one in turn.tool_results
        ],
        turn.prompt, turn.group, turn.loaded, turn.cached_for, turn.summary, *_paths((turn.cwd,)),
    ]  # fmt: skip


def _paths(paths: Iterable[str]) -> list[str]:
    return [path if _fit(path) else _UNFIT for path in paths]


def turn_from_row(row: list[Any]) -> Turn:
    """Return the turn of a row from `turn_to_row`, with masked texts. Equal ids and names are kept in memory once."""
    id_, parent, role, timestamp, text, tokens, calls, results, prompt, group, loaded, cached, summary, cwd = row
    return Turn(
        intern(id_), None if parent is None else intern(parent), role, timestamp, text, tokens,
        tuple(
            ToolCall(
                intern(call), intern(name), action, asks, tuple(edits), tuple(reads), tuple(map(bytes.fromhex, lines)),
                tuple(places),
            )
            for call, name, action, asks, edits, reads, lines, places in calls
        ),
        tuple(
            ToolResult(intern(call), failed, Masked(note), Proof(proof), bytes.fromhex(errors), *map(Masked, said))
            for call, failed, note, proof, errors, *said in results
        ),
        prompt, intern(group), loaded=loaded, cached_for=cached, summary=Masked(summary), cwd=intern(cwd),
    )  # fmt: skip


def count(value: object) -> int:
    """Return a number from a log if it is a plausible count, for example of tokens; else 0."""
    return value if type(value) is int and 0 < value < _MAX_COUNT else 0


def is_path(value: object) -> TypeGuard[str]:
    """Return True if a value from a log can be the path of a directory. No system accepts a path with a NUL."""
    return isinstance(value, str) and value != "" and "\0" not in value


def _seconds(number: float) -> float:
    """Return a time as seconds since 1970 from such a number of seconds, milli-, micro- or nanoseconds.

    Raises:
        ValueError: `number` is not a time of this century in any of these units.
    """
    found = [seconds for unit in (1, 1e3, 1e6, 1e9) if _FIRST <= (seconds := number / unit) < _END]
    if not found:
        raise ValueError(number)
    return found[0]


def utc(value: object) -> str:
    """Convert a timestamp of any form seen in logs to ISO 8601 in UTC with ``Z``; empty if it is not of this century.

    A time without a zone is taken as UTC. The unit of a number is inferred from its size.
    """
    try:
        if isinstance(value, str) and ("-" in value or not _NUMBER.fullmatch(value)):
            moment = datetime.fromisoformat(value)
            if len(value) == 24 and value[7] == "-" and value[10] == "T" and value[19] == "." and value[23] == "Z":
                return value if value >= _CENTURY else ""  # the common form
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            moment = datetime.fromtimestamp(_seconds(float(value)), UTC)
        else:
            return ""
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    told = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return told if told >= _CENTURY else ""
