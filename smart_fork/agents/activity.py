"""A worker's state, read from the end of its log: working, or idle.

Only records since the worker's start count. Records copied from the parent keep their times, and must not make the
worker look finished. Only the end of a log is read, however long the log is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexer.masking import Masked
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from indexer.transcripts.state import utc
from smart_fork.agents.facets import tail_of
from smart_fork.agents.tail import Calls
from smart_fork.registry.workers import Status
from smart_fork.text.snippets import quoted


@dataclass(frozen=True, slots=True)
class Task:
    """A background task. `what` is its name, or its command line."""

    id: str
    what: Masked


def running_tasks(agent: AgentName, records: Iterable[Mapping[str, Any]], since: str = "") -> tuple[Task, ...]:
    """Return the tasks started since `since` without a logged end, oldest first."""
    calls: Calls = {}
    steps = tail_of(agent).steps
    running: dict[str, str] = {}
    for record in records:
        for identity, what in steps(record, calls):
            if what is None:
                running.pop(identity, None)
            elif utc(record.get("timestamp")) >= since:
                running[identity] = what
    return tuple(Task(identity, quoted(" ".join((what or identity).split()))) for identity, what in running.items())


def output_tokens(agent: AgentName, log: Path, since: str) -> int:
    """Return the tokens of all answers in `log` since the time `since`. Records that a fork copied are older.

    Raises:
        OSError: The log cannot be read.
    """
    tail = tail_of(agent)
    return tail.written(record for record in tail.records(log) if str(record.get("timestamp") or "") >= since)


#: Some versions of agents do not log why the model stopped. Their last message ends the turn after this time without
#: another record.
SETTLED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Activity:
    """A worker's state. `status` is empty if the log does not tell; `problem` is the reason why the agent stopped.

    With `settling` it is idle only if no record follows soon. `at` is the time of the last record, `tokens` the size of
    the context then.
    """

    status: Status = ""
    at: str | None = None
    tokens: int = 0
    problem: str = ""
    settling: bool = False


def activity(agent: AgentName, path: Path, since: str) -> Activity:
    """Return the state at the end of the log at `path`, from records since `since`.

    Raises:
        OSError: The log cannot be read.
    """
    found, this_turn = Activity(), True
    tail = tail_of(agent)
    for record in tail.backwards(path):
        moment = utc(record.get("timestamp"))
        if moment and moment < since:
            break
        if not moment:  # notes that say nothing of when
            continue
        sign = tail.sign(record)
        found = replace(found, at=found.at or moment, tokens=found.tokens or sign.tokens)
        if this_turn and sign.problem:
            found = replace(found, problem=found.problem or sign.problem)
        if sign.status and not found.status:
            found = replace(found, status=sign.status, settling=sign.settling)
        this_turn = this_turn and sign.status != "working"
        if found.status and found.tokens and not this_turn:
            break
    return found if found.status == "idle" else replace(found, problem="")
