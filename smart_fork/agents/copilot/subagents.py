"""The sub-agents of Copilot CLI's sessions: what they say and do stands among the session's own events.

Each of their events names its agent. The event with which one begins has the id of the call that began it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern

from indexer.masking import Masked
from indexer.transcripts.fold import Record, read
from indexer.transcripts.lines import Line, LineReader
from indexer.transcripts.model import Session, Turn
from indexer.transcripts.titles import title_of
from smart_fork.agents.copilot.codec import data_of
from smart_fork.agents.copilot.fold import CopilotTree
from smart_fork.agents.subagents import SubAgents

#: The tool that sets one to work, and the event with which that begins.
_TOOL, _STARTED = "task", "subagent.started"


class CopilotSubAgents(SubAgents):
    """See `SubAgents`."""

    def begun(self, session: Session) -> Mapping[str, str]:
        if not any(call.name == _TOOL for turn in session.turns for call in turn.tool_calls):
            return {}
        try:
            records = [line.record for line in LineReader(session.source_path) if line.record.get("type") == _STARTED]
        except OSError:
            return {}
        named = [(data_of(one).get("toolCallId"), one.get("agentId")) for one in records]
        return {call: name for call, name in named if isinstance(call, str) and isinstance(name, str)}

    def read(self, session: Session, name: str) -> Session | None:
        class Named(_SubAgentTree):
            agent_id = name

        return read(Named, session.source_path, None, keep_raw=True).session


class _SubAgentTree(CopilotTree):
    """What the events of one sub-agent add up to. Others are links of the chain."""

    agent_id = ""

    def feed(self, line: Line) -> None:
        record = line.record
        if record.get("agentId") == self.agent_id or record.get("type") == "session.start":
            super().feed(line)
        elif isinstance(identity := record.get("id"), str):
            parent = record.get("parentId")
            self.chain.link(intern(identity), parent if isinstance(parent, str) else None)

    def is_another(self, record: Record) -> bool:
        return record.get("agentId") != self.agent_id

    def is_asked(self, data: Mapping[str, object]) -> bool:
        """The session asks it."""
        return True

    def title(self, turns: tuple[Turn, ...]) -> Masked:
        return title_of("", (turn.text for turn in turns if turn.prompt))

    def names(self, turns: tuple[Turn, ...]) -> Iterable[str]:
        return ()
