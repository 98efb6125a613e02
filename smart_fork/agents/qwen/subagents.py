"""The sub-agents of Qwen Code's sessions: a log each, whose name ends with the id of the call that began it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from indexer.transcripts.model import Session
from smart_fork.agents.qwen.copy import agents_of
from smart_fork.agents.qwen.fold import QwenTree
from smart_fork.agents.subagents import LoggedSubAgents, SubAgentRecords


class QwenSubAgents(LoggedSubAgents):
    """See `SubAgents`."""

    agent = "qwen"

    def tree(self) -> type[QwenTree]:
        return _SubAgentTree

    def folders(self, session: Session) -> Iterable[tuple[Path, int]]:
        log = session.source_path
        inside = log.parent if log.parent.parent.name == "subagents" else None
        return ((inside or agents_of(log), 0),)

    def begun(self, session: Session) -> Mapping[str, str]:
        logs = self.logs(session)
        calls = {call.id for turn in session.turns for call in turn.tool_calls if call.id} if logs else set()
        return {call: name for call in calls for name in logs if name.endswith(f"-{call}")}


class _SubAgentTree(SubAgentRecords, QwenTree):
    """What the records of a sub-agent of Qwen Code add up to."""
