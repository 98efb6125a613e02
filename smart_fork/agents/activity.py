"""What the end of a log says of what its agent does: working, or done with what it was asked.

Only what was written since a moment counts, a worker's start: what an agent copies from the parent keeps its time, and
must not make the worker look finished (F-105). Only the end of a log is read, however long it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from indexer.transcripts.lines import decode_line, open_regular
from indexer.transcripts.model import Agent
from indexer.transcripts.state import utc
from smart_fork.agents.tails import tail_of
from smart_fork.registry import Status

#: One record, such as a large file that was read, may be longer: then there are fewer signs, not wrong ones.
TAIL_BYTES = 512 * 1024
#: Versions of agents that do not say why the model stopped: what it said last is its last word when nothing has
#: followed for so long.
SETTLED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Activity:
    """`status` is empty where the log does not say; `problem` is why the agent could not go on.

    `settling` says that it is only idle if nothing follows soon. `at` is the time of the last record, `tokens` how many
    the agent had in its context last.
    """

    status: Status = ""
    at: str | None = None
    tokens: int = 0
    problem: str = ""
    settling: bool = False


def activity(agent: Agent, path: Path, since: str) -> Activity:
    """What the log at `path` says of the time since `since`.

    Raises:
        OSError: it cannot be read.
    """
    found, this_turn = Activity(), True
    sign_of = tail_of(agent).sign
    for record in _backwards(path):
        moment = utc(record.get("timestamp"))
        if moment and moment < since:
            break
        if not moment:  # notes that say nothing of when
            continue
        sign = sign_of(record)
        found = replace(found, at=found.at or moment, tokens=found.tokens or sign.tokens)
        if this_turn and sign.problem:
            found = replace(found, problem=found.problem or sign.problem)
        if sign.status and not found.status:
            found = replace(found, status=sign.status, settling=sign.settling)
        this_turn = this_turn and sign.status != "working"
        if found.status and found.tokens and not this_turn:
            break
    return found if found.status == "idle" else replace(found, problem="")


def _backwards(path: Path) -> Iterator[dict[str, Any]]:
    """The records at the log's end, the last one first; what is torn or broken is passed over."""
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
