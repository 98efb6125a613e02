"""The sub-agents of Claude Code's sessions: a log each in ``<session>/subagents``, before 2.1.2 beside the session's.

The answer of the call that began one names it; while it runs, what stands beside its log names the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from indexer.transcripts.lines import open_regular
from indexer.transcripts.model import Session
from indexer.unchecked import dict_in, dicts_in, json_in, text_in
from smart_fork.agents.claude.fold import ClaudeTree
from smart_fork.agents.subagents import LoggedSubAgents, SubAgentRecords

#: What an answer has in it that names a sub-agent.
_NAMES = b'"agentId"'
#: The tools that set one to work, and of what is noted beside its log so much is read.
_TOOLS, _MOST = ("Agent", "Task"), 64 * 1024
#: The folder of their logs, and how many below it those are in that a workflow began.
_FOLDER, _BELOW = "subagents", 2


class ClaudeSubAgents(LoggedSubAgents):
    """See `SubAgents`."""

    agent = "claude"

    def tree(self) -> type[ClaudeTree]:
        return _SubAgentTree

    def folders(self, session: Session) -> Iterable[tuple[Path, int]]:
        log = session.source_path
        inside = next((one for one in log.parents if one.name == _FOLDER), None)
        return ((inside, _BELOW),) if inside else ((log.with_suffix("") / _FOLDER, _BELOW), (log.parent, 0))

    def begun(self, session: Session) -> Mapping[str, str]:
        calls = {call.id for turn in session.turns for call in turn.tool_calls if call.name in _TOOLS}
        logs = self.logs(session) if calls else {}
        answers = [turn.raw for turn in session.turns if turn.tool_results and _NAMES in turn.raw]
        ended = {call: name for raw in answers for call, name in _named(raw) if name in logs}
        known = set(ended.values())
        left = {name: log for name, log in logs.items() if name not in known}
        return {call: name for name, log in left.items() if (call := _beside(log)) in calls} | ended


class _SubAgentTree(SubAgentRecords, ClaudeTree):
    """What the records of a sub-agent of Claude Code add up to."""


def _beside(log: Path) -> str:
    """The call that began a sub-agent, as Claude Code notes it when that begins; empty where it does not."""
    try:
        with open_regular(log.with_suffix(".meta.json")) as file:
            return text_in(dict_in(json_in(file.read(_MOST))).get("toolUseId"))
    except OSError:
        return ""


def _named(raw: bytes) -> Iterator[tuple[str, str]]:
    """The calls that a record answers, with the sub-agent that it names."""
    record = dict_in(json_in(raw))
    name = dict_in(record.get("toolUseResult")).get("agentId")
    for block in dicts_in(dict_in(record.get("message")).get("content")) if isinstance(name, str) else ():
        if isinstance(call := block.get("tool_use_id"), str):
            yield call, str(name)
