"""Background tasks by an agent's log: shells, monitors, workflows and sub-agents.

Only what the agent itself says of a start or an end counts, not a request for it. Without a logged end, a task counts
as running. The log does not tell if the agent itself still runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from indexer.masking import Masked
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from indexer.transcripts.state import utc
from smart_fork.agents.facets import tail_of
from smart_fork.agents.tail import Calls
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
