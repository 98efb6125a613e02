"""What each agent is like: a folder each, and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexer.transcripts.base import Agents

    AGENTS: Agents


def __getattr__(name: str) -> Agents:
    """The agents, when they are first asked for: a hook, which runs with each prompt, does without them."""
    if name != "AGENTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from indexer.transcripts.base import Agents
    from smart_fork.agents.claude.log import ClaudeAdapter
    from smart_fork.agents.codex.log import CodexAdapter

    agents = Agents(
        ClaudeAdapter(),
        CodexAdapter(),
    )
    globals()[name] = agents
    return agents
