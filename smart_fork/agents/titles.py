"""What people call the agents, and which of them has started a program."""

from __future__ import annotations

from collections.abc import Mapping

from indexer.transcripts.model import Agent

TITLES: Mapping[Agent, str] = {"claude": "Claude Code", "codex": "Codex"}
#: Of what each agent tells the programs that it starts, what tells it from others.
_MARKS: Mapping[str, Agent] = {"CLAUDECODE": "claude", "CODEX_THREAD_ID": "codex", "CODEX_SESSION_ID": "codex"}


def title_of(agent: str) -> str:
    """What people call the agent of this name; of one that is not known, its name."""
    return TITLES.get(agent, agent)


def agent_around(env: Mapping[str, str]) -> Agent | None:
    """The agent that has started the program whose environment this is; `None` for a person's own shell."""
    return next((agent for name, agent in _MARKS.items() if env.get(name)), None)
