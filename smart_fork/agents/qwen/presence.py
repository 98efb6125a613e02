"""Where Qwen Code runs: it notes each running session in ``<id>.runtime.json`` beside its log."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from indexer.unchecked import dict_in, json_at
from smart_fork.agents.presence import Presence
from smart_fork.agents.qwen.log import QwenAdapter


class QwenPresence(Presence):
    """See `Presence`."""

    def noted(self, session_id: str) -> Collection[int]:
        """See `Presence.noted`. The note stays when the process has ended."""
        return {pid for log in QwenAdapter().locate(session_id) for pid in process_of(log)}


#: The processes of this agent.
PRESENCE = QwenPresence(("qwen",), forks=("--fork-session",))


def process_of(log: Path) -> Iterator[int]:
    """The number of the process that Qwen Code says writes this log; it may have ended."""
    note = dict_in(json_at(log.with_suffix(".runtime.json")))
    pid = note.get("pid")
    if type(pid) is int and pid > 0 and note.get("session_id") == log.stem:
        yield pid
