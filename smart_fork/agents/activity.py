"""What the end of a log says of what its agent does: working, or done with what it was asked.

Only what was written since a moment counts, a worker's start: what an agent copies from the parent keeps its time, and
must not make the worker look finished. Only the end of a log is read, however long it is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from indexer.transcripts.state import utc
from smart_fork.agents.facets import tail_of
from smart_fork.registry.workers import Status

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


def activity(agent: AgentName, path: Path, since: str) -> Activity:
    """What the log at `path` says of the time since `since`.

    Raises:
        OSError: it cannot be read.
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
