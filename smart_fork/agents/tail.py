"""Signs of a worker's state in the records at the end of its log, for all agents."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from indexer.shapes import dataclass
from indexer.transcripts.lines import LineReader, decode_line, open_regular
from indexer.transcripts.model import AgentName
from indexer.unchecked import dict_in, json_in
from smart_fork.registry.workers import Status

#: A record, such as a large file that was read, may be longer. Then there are fewer signs, but no wrong ones.
TAIL_BYTES = 512 * 1024
#: States of a task that has not ended.
GOING_ON = ("running", "pending", "pending_init", "paused")

_NOTIFICATION = re.compile(r"<task-notification>(.*?)</task-notification>", re.DOTALL)
_TASK = re.compile(r"<task-id>([^<]+)</task-id>")
_STATUS = re.compile(r"<status>(\w+)</status>")


@dataclass(frozen=True, slots=True)
class RecordSign:
    """The sign in one record. Most records have none."""

    status: Status = ""
    tokens: int = 0
    problem: str = ""
    settling: bool = False


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call without its result so far."""

    tool: str
    given: Mapping[str, Any]

    def text(self, *names: str) -> str:
        return next((value for name in names if isinstance(value := self.given.get(name), str) and value), "")


NO_CALL = OpenCall("", {})
Calls = dict[str, OpenCall]
#: A task's id, and its name at its start; `None` at its end.
Steps = Iterator[tuple[str, str | None]]


def records(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a log with one record a line.

    Raises:
        OSError: The log cannot be read.
    """
    return (line.record for line in LineReader(path))


def backwards(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records at the end of such a log, the last one first, without broken ones.

    Raises:
        OSError: The log cannot be read.
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
    """Reads new records of one agent's logs. Each has its time as ``timestamp``.

    `records` are all records of a log, `backwards` those at its end, the last one first. `sign` is a record's sign.
    `steps` are the background tasks that start or end with a record, given the open calls. `written` counts the tokens
    that the model wrote in records.
    """

    name: AgentName
    sign: Callable[[Mapping[str, Any]], RecordSign]
    steps: Callable[[Mapping[str, Any], Calls], Steps]
    written: Callable[[Iterable[Mapping[str, Any]]], int]
    records: Callable[[Path], Iterator[Mapping[str, Any]]] = records
    backwards: Callable[[Path], Iterator[Mapping[str, Any]]] = backwards


def no_steps(record: Mapping[str, Any], calls: Calls) -> Steps:
    """Return nothing, for logs that do not tell of background tasks."""
    del record, calls
    yield from ()


def notified(text: str) -> Steps:
    """Yield the tasks whose end a message reports in tags. What a monitor reports has no status: its task goes on."""
    for told in _NOTIFICATION.finditer(text):
        task, status = _TASK.search(told[1]), _STATUS.search(told[1])
        if task and status and status[1] not in GOING_ON:
            yield task[1].strip(), None


def object_in(text: object) -> dict[str, Any]:
    """Return the object in a JSON text; empty if it is none."""
    return dict_in(json_in(text) if isinstance(text, str) else text)
