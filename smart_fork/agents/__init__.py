"""What each agent is like: a folder each, and one line here. What is heavy is imported where it is needed."""

from __future__ import annotations

from indexer.transcripts.base import Agents
from smart_fork.agents.claude.log import ClaudeAdapter
from smart_fork.agents.codex.log import CodexAdapter

AGENTS = Agents(
    ClaudeAdapter(),
    CodexAdapter(),
)
