"""Claude Code's hooks, in its ``settings.json``."""

from __future__ import annotations

from collections.abc import Iterator

from indexer.transcripts.model import AgentName
from smart_fork.agents.claude.home import HOME
from smart_fork.agents.hooks import Hooks, switched_off


class ClaudeHooks(Hooks):
    """See `Hooks`."""

    agent: AgentName = "claude"
    home = HOME
    edits = "Edit|MultiEdit"
    failures = ("PostToolUseFailure", "Bash")
    #: No others: it stops at its start to ask about an event that it does not know.
    events = ("SessionStart", "UserPromptSubmit", "Notification", "Stop", "SessionEnd")

    def notes(self, text: str) -> Iterator[str]:
        """See `Hooks.notes`."""
        return switched_off(text, "Claude Code")
