"""Qwen Code's hooks, in its ``settings.json``: events, values and answers are those of Claude Code."""

from __future__ import annotations

from collections.abc import Iterator

from indexer.transcripts.model import AgentName
from smart_fork.agents.hooks import Hooks, switched_off
from smart_fork.agents.qwen.home import HOME


class QwenHooks(Hooks):
    """See `Hooks`."""

    agent: AgentName = "qwen"
    home = HOME
    begun = ('"role":"model"', '"forkedFrom":')
    #: npm's script, what that begins with more memory, and what does the work.
    processes = 3
    events = ("SessionStart", "UserPromptSubmit", "Notification", "Stop", "SessionEnd")

    def notes(self, text: str) -> Iterator[str]:
        """See `Hooks.notes`."""
        return switched_off(text, "Qwen Code")
