"""How many tokens a worker's model has written, as the agent itself recorded it."""

from __future__ import annotations

from pathlib import Path

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Agent
from smart_fork.agents.tails import tail_of


def output_tokens(agent: Agent, log: Path, since: str) -> int:
    """The tokens of all answers in `log` from the time `since` on: what a fork has copied is older.

    Raises:
        OSError: the log cannot be read.
    """
    records = (line.record for line in LineReader(log) if str(line.record.get("timestamp") or "") >= since)
    return tail_of(agent).written(records)
