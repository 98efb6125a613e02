"""How many tokens a worker's model has written, as the agent itself recorded it."""

from __future__ import annotations

from pathlib import Path

from indexer.transcripts.model import AgentName
from smart_fork.agents.facets import tail_of


def output_tokens(agent: AgentName, log: Path, since: str) -> int:
    """The tokens of all answers in `log` from the time `since` on: what a fork has copied is older.

    Raises:
        OSError: the log cannot be read.
    """
    tail = tail_of(agent)
    return tail.written(record for record in tail.records(log) if str(record.get("timestamp") or "") >= since)
