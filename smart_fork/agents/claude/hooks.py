"""Claude Code's hooks, in its ``settings.json``."""

from __future__ import annotations

from smart_fork.agents.hooks import Hooks


class ClaudeHooks(Hooks):
    """See `Hooks`."""

    edits = "Edit|MultiEdit"
    failures = ("PostToolUseFailure", "Bash")
    #: No others: it stops at its start to ask about an event that it does not know.
    events = ("SessionStart", "UserPromptSubmit", "Notification", "Stop", "SessionEnd")
