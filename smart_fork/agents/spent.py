"""Counts the tokens that a worker's model wrote, by the agent's log."""

from __future__ import annotations

from pathlib import Path

from indexer.transcripts.model import AgentName
from smart_fork.agents.facets import tail_of


def output_tokens(agent: AgentName, log: Path, since: str) -> int:
    """Return the tokens of all answers in `log` since the time `since`. Records that a fork copied are older.

    Raises:
        OSError: The log cannot be read.
    """
    tail = tail_of(agent)
    return tail.written(record for record in tail.records(log) if str(record.get("timestamp") or "") >= since)
