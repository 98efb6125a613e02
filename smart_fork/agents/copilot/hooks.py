"""Copilot CLI's hooks, in its ``settings.json``: Claude Code's, in its form.

Seen with 1.0.102: events with Claude Code's names are said as Claude Code says them, but for a notification, which
names its session as Copilot CLI's own events do. What a hook says before a tool reaches the model; what it says at a
prompt does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smart_fork.agents.hooks import Hooks


class CopilotHooks(Hooks):
    """See `Hooks`."""

    edits = "Edit|MultiEdit"
    recalls = False
    events = ("SessionStart", "UserPromptSubmit", "Stop", "Notification", "SessionEnd")

    def event(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"session_id": said.get("sessionId"), **said}
