"""Which tasks a log says run in the background: shells, monitors, workflows and sub-agents that the agent has started.

What an agent says itself of their beginning and end counts, never what was only asked for. Where its log tells of no
end, a task is one that runs; whether there is still an agent to run it, the log does not say.
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
    """What runs in the background. `what` is how its agent or its command line calls it."""

    id: str
    what: Masked


def running_tasks(agent: AgentName, records: Iterable[Mapping[str, Any]], since: str = "") -> tuple[Task, ...]:
    """The tasks that were begun since that moment and not seen to end, oldest first."""
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
