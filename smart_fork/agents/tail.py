"""What the records at the end of a log say of what its agent does, whichever agent it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from indexer.shapes import dataclass
from indexer.transcripts.lines import LineReader, decode_line, open_regular
from indexer.transcripts.model import AgentName
from smart_fork.agents.codec import dicts_in
from smart_fork.registry.workers import Status

#: One record, such as a large file that was read, may be longer: then there are fewer signs, not wrong ones.
TAIL_BYTES = 512 * 1024
#: What of a task is not its end.
GOING_ON = ("running", "pending", "pending_init", "paused")


@dataclass(frozen=True, slots=True)
class RecordSign:
    """What one record says; nothing at all for most."""

    status: Status = ""
    tokens: int = 0
    problem: str = ""
    settling: bool = False


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call of a tool whose result has not been read yet."""

    tool: str
    given: Mapping[str, Any]

    def text(self, *names: str) -> str:
        return next((value for name in names if isinstance(value := self.given.get(name), str) and value), "")


NO_CALL = OpenCall("", {})
Calls = dict[str, OpenCall]
#: The id of a task, and what it is called where it begins; `None` where it has ended.
Steps = Iterator[tuple[str, str | None]]


def records(path: Path) -> Iterator[Mapping[str, Any]]:
    """The records of a log that is a file of lines, in their order.

    Raises:
        OSError: it cannot be read.
    """
    return (line.record for line in LineReader(path))


def backwards(path: Path) -> Iterator[Mapping[str, Any]]:
    """The records at the end of such a log, the last one first; what is torn or broken is passed over.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).split(b"\n")
    if size > TAIL_BYTES:
        del lines[0]
    for line in reversed(lines):
        if line:
            for _, record in reversed(decode_line(line)[0]):
                yield record


@dataclass(frozen=True, slots=True)
class Tail:
    """The records of one agent's logs, as they are added. Each has its time as ``timestamp``.

    `records` are those of a log, `backwards` those at its end, the last one first.
    `sign` is what a record says of what the agent does. `steps` are the tasks in the background that begin or end with
    a record, given the calls without a result so far. `written` is how many tokens the model has written in records.
    """

    name: AgentName
    sign: Callable[[Mapping[str, Any]], RecordSign]
    steps: Callable[[Mapping[str, Any], Calls], Steps]
    written: Callable[[Iterable[Mapping[str, Any]]], int]
    records: Callable[[Path], Iterator[Mapping[str, Any]]] = records
    backwards: Callable[[Path], Iterator[Mapping[str, Any]]] = backwards


def no_steps(record: Mapping[str, Any], calls: Calls) -> Steps:
    """Nothing goes on in the background that the log would tell of."""
    del record, calls
    yield from ()


def object_in(text: object) -> dict[str, Any]:
    """The object that a text spells; empty where it is none."""
    try:
        value = orjson.loads(text) if isinstance(text, str) else text
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def text_in(content: object) -> str:
    """What a content says."""
    if isinstance(content, str):
        return content
    return "\n".join(text for block in dicts_in(content) if isinstance(text := block.get("text"), str))


def number_in(value: object) -> int:
    """A number of tokens, as a log gives it; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
