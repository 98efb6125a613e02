"""Copilot CLI's settings: MCP servers, login and hooks.

Seen with 1.0.102:

* Servers are ``mcpServers`` in ``mcp-config.json``, as ``copilot mcp add`` writes them. Copilot CLI starts each server
  in the session's directory, with its variables except for those of its model's provider.
* The login is a token in the environment, a person's own model, or what ``copilot login`` stored. No command tells
  whether Copilot CLI is logged in.
* The hooks are in ``settings.json``, in Claude Code's form. Their events have Claude Code's names and values, except
  that a notification has the session's id in ``sessionId``. The model gets what a hook prints before a tool, but not
  what it prints at a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from smart_fork.agents.hooks import Hooks
from smart_fork.agents.login import Login
from smart_fork.agents.mcp_registration import JsonRegistration


class CopilotRegistration(JsonRegistration):
    """The registration of smart-fork's MCP server in Copilot CLI's ``mcp-config.json``."""

    file = "mcp-config.json"
    client = ("copilot-cli", "2025-11-25")

    def wanted(self, words: Sequence[str], env: Mapping[str, str], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the entry that starts `words`. It lists all tools ("*"): Copilot CLI offers only listed ones."""
        return {"type": "local", "tools": ["*"], **super().wanted(words, env, before)}


class CopilotLogin(Login):
    """Knows how Copilot CLI logs in."""

    command = "copilot login"
    #: The last variable names the server of a person's own model.
    keys = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL")
    beside = (
        "COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BEARER_TOKEN", "COPILOT_PROVIDER_TYPE",
        "COPILOT_PROVIDER_WIRE_API", "COPILOT_MODEL", "COPILOT_OFFLINE", "GH_HOST",
    )  # fmt: skip


class CopilotHooks(Hooks):
    """Knows the hooks of Copilot CLI: commands that it runs at events."""

    edits = "Edit|MultiEdit"
    recalls = False
    events = ("SessionStart", "UserPromptSubmit", "Stop", "Notification", "SessionEnd")

    def event(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"session_id": said.get("sessionId"), **said}
