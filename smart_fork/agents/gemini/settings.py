"""Gemini CLI's settings: MCP servers, login and hooks.

Seen with 0.61:

* Servers are ``mcpServers`` in ``settings.json``, as ``gemini mcp add -s user`` writes them. Without a terminal Gemini
  CLI offers only the tools of trusted servers. It starts each server in the project, with its variables except for
  those that look like secrets.
* The login is a key in the environment, also in an ``.env`` file, or what Gemini CLI's login dialog stored.
  ``security.auth.selectedType`` names the method. Without a login Gemini CLI ends immediately. No command tells whether
  it is logged in.
* The hooks are Claude Code's, with other names of events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from indexer.json_values import dict_in
from smart_fork.agents.hooks import TIMEOUT, Hooks
from smart_fork.agents.login import Login
from smart_fork.agents.mcp_registration import JsonRegistration


class GeminiRegistration(JsonRegistration):
    """The registration of smart-fork's MCP server in Gemini CLI's ``settings.json``."""

    client = ("gemini-cli-mcp-client", "2025-06-18")
    said: Mapping[str, str] = {"GEMINI_CLI": "1"}


class GeminiLogin(Login):
    """Knows how Gemini CLI logs in."""

    command = "gemini"
    keys = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    beside = (
        "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_GENAI_USE_VERTEXAI",
        "GOOGLE_GENAI_USE_GCA", "GOOGLE_CLOUD_ACCESS_TOKEN", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL",
        "GEMINI_MODEL", "GEMINI_CLI_TRUST_WORKSPACE",
    )  # fmt: skip

    def is_plain(self, env: Mapping[str, str]) -> bool:
        if self.auth().get("selectedType") == "oauth-personal":
            return self.has_stored("oauth_creds.json")
        return super().is_plain(env)


#: Claude Code's names of the events that have other names, and of the only kind of notification.
_RENAMED = {"BeforeAgent": "UserPromptSubmit", "AfterAgent": "Stop", "ToolPermission": "permission_prompt"}


class GeminiHooks(Hooks):
    """Knows the hooks of Gemini CLI: commands that it runs at events, which have names of their own."""

    recalls = False
    #: npm's script, and the process that it starts with more memory.
    processes = 3
    events = ("SessionStart", "BeforeAgent", "AfterAgent", "Notification", "SessionEnd")

    def handler(self, command: str) -> dict[str, Any]:
        """Return the settings entry of a hook, with its timeout in milliseconds."""
        return super().handler(command) | {"timeout": TIMEOUT * 1000}

    def notes(self, text: str) -> Iterator[str]:
        if dict_in(json.loads(text).get("hooksConfig")).get("enabled") is False:
            yield "Gemini CLI runs no hooks: hooksConfig.enabled is false in its settings"

    def event(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        named = {name: said[name] for name in ("hook_event_name", "notification_type") if name in said}
        return {**said, **{name: _RENAMED.get(one, one) for name, one in named.items() if isinstance(one, str)}}
