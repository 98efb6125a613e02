"""What of a log of this machine is shared, for the commands that take something out of it here alone."""

from __future__ import annotations

from pathlib import Path

from indexer import state
from smart_fork.errors import SmartForkError


def shared_copy(path: Path, agent: str) -> str | None:
    """The shared session that a log is tracked as; nothing where nobody here shares any."""
    if not state.rows("SELECT 1 FROM pulled LIMIT 1"):
        return None
    from smart_fork.agents import READERS
    from smart_fork.team.pulled import pushed_as

    if agent not in READERS.names:
        return None
    try:
        return pushed_as(path, agent)
    except SmartForkError:
        return None
