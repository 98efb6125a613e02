"""Gemini CLI's hooks, in its ``settings.json``: Claude Code's, under other names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from indexer.values import dict_in
from smart_fork.agents.hooks import TIMEOUT, Hooks

#: What its events are called, and how Claude Code calls those.
_EVENTS = {
    "SessionStart": "SessionStart",
    "BeforeAgent": "UserPromptSubmit",
    "AfterAgent": "Stop",
    "Notification": "Notification",
    "SessionEnd": "SessionEnd",
}
#: And the one notification that it has.
_NOTIFICATIONS = {"ToolPermission": "permission_prompt"}


class GeminiHooks(Hooks):
    """See `Hooks`."""

    recalls = False
    #: npm's script, and what that begins with more memory.
    processes = 3
    events = tuple(_EVENTS)

    def handler(self, command: str) -> dict[str, Any]:
        """See `Hooks.handler`. It counts in milliseconds."""
        return {"type": "command", "command": command, "timeout": TIMEOUT * 1000}

    def notes(self, text: str) -> Iterator[str]:
        if dict_in(json.loads(text).get("hooksConfig")).get("enabled") is False:
            yield "Gemini CLI runs no hooks: hooksConfig.enabled is false in its settings"

    def event(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        name, kind = said.get("hook_event_name"), said.get("notification_type")
        names = {"hook_event_name": _EVENTS.get(name, name)} if isinstance(name, str) else {}
        kinds = {"notification_type": _NOTIFICATIONS.get(kind, kind)} if isinstance(kind, str) else {}
        return {**said, **names, **kinds}
