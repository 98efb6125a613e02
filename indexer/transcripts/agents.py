"""The agents that can be read: a new one is one file beside this and one line here."""

from __future__ import annotations

from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.claude import ClaudeAdapter
from indexer.transcripts.codex import CodexAdapter
from indexer.transcripts.model import Agent

AGENTS: tuple[AgentAdapter, ...] = (ClaudeAdapter(), CodexAdapter())


def adapter(agent: Agent) -> AgentAdapter:
    """The adapter of that name."""
    return next(known for known in AGENTS if known.name == agent)
