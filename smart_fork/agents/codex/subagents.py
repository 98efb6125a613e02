"""The sub-agents of Codex: each has a rollout (log file) of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from indexer.json_values import dict_in, json_in, text_in
from indexer.transcripts.lines import LineReader, first_lines
from indexer.transcripts.model import Session
from smart_fork.agents.codex.codec import text_of
from smart_fork.agents.codex.log_files import CodexAdapter
from smart_fork.agents.codex.rollouts import id_in
from smart_fork.agents.codex.session_reader import CodexFold
from smart_fork.agents.subagents import SubAgents

#: The tool that starts a sub-agent, and the bytes in its result.
_TOOL, _NAMES_AGENT = "spawn_agent", b"agent_id"


#: The depth to which sub-agents of sub-agents are followed.
_MAX_DEPTH = 8


class CodexSubAgents(SubAgents):
    """Reads Codex's sub-agents, each with a rollout (log file) of its own."""

    def begun(self, session: Session) -> Mapping[str, str]:
        calls = {call.id for turn in session.turns for call in turn.tool_calls if call.name == _TOOL}
        answers = [turn.raw for turn in session.turns if calls and turn.tool_results and _NAMES_AGENT in turn.raw]
        named = [pair for raw in answers for pair in _started_agents(raw)]
        logs = _logs() if named else {}
        return {call: name for call, name in named if call in calls and _belongs_to(session, name, logs)}

    def read(self, session: Session, name: str) -> Session | None:
        if not _belongs_to(session, name, logs := _logs()):
            return None
        found = CodexFold(logs[name], None, keep_raw=True).take(LineReader(logs[name]))
        found.facts["source"] = ""  # as a sub-agent's it would be no session
        return found.session()[0]


def _logs() -> Mapping[str, Path]:
    """Return the logs of all Codex sessions, also of sub-agents, by session id."""
    return {id_in(log.path): log.path for log in CodexAdapter().discover()}


def _belongs_to(session: Session, name: str, logs: Mapping[str, Path]) -> bool:
    """Return True if the session, its ancestor, or a sub-agent of one of them started the sub-agent session `name`."""
    own = {session.session_id, session.parent_id, session.root_id}
    for _ in range(_MAX_DEPTH):
        if (log := logs.get(name)) is None:
            return False
        if (name := _parent(log)) in own:
            return True
    return False


def _parent(log: Path) -> str:
    """Return the id of the session that began a sub-agent, from the header in its `log`; empty without one."""
    found: object = None
    with suppress(OSError):
        found = next((line.record.get("payload") for line in first_lines(log)), None)
    for key in ("source", "subagent", "thread_spawn", "parent_thread_id"):
        found = dict_in(found).get(key)
    return text_in(found)


def _started_agents(raw: bytes) -> Iterator[tuple[str, str]]:
    """Yield (call id, sub-agent's name) if the record answers a call that started a sub-agent."""
    record = dict_in(json_in(raw))
    item = dict_in(record.get("payload", record))
    if isinstance(name := dict_in(json_in(text_of(item.get("output")))).get("agent_id"), str):
        yield str(item.get("call_id") or item.get("id") or ""), name
