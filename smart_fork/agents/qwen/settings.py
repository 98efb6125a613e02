"""Qwen Code's settings: MCP servers, login and hooks.

Seen with 0.24:

* Servers are ``mcpServers`` in ``settings.json``, as ``qwen mcp add -s user`` writes them. Qwen Code waits for its
  servers before the first request. It starts each server in the project, with all of its own variables.
* The login is a key in the environment or in the settings, or what Qwen Code's login dialog stored.
  ``security.auth.selectedType`` names the method. Without a key for the method Qwen Code ends immediately ("Missing API
  key for …"). No command tells whether it is logged in.
* The hooks have Claude Code's events, values and answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexer.json_values import dicts_in, text_in
from smart_fork.agents.hooks import Hooks
from smart_fork.agents.login import Login, is_variable, table
from smart_fork.agents.mcp_registration import NAME, JsonRegistration


class QwenRegistration(JsonRegistration):
    """The registration of smart-fork's MCP server in Qwen Code's ``settings.json``."""

    #: Qwen Code puts the server's name behind its own.
    client = (f"qwen-cli-mcp-client-{NAME}", "2025-11-25")

    def permission_rules(self, tools: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"mcp__{NAME}__{tool}" for tool in tools)


#: The variables of each login method: first those of which any one is a login, then those that select server or model.
_OPENAI = (("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY"))
_WAYS = {
    "openai-responses": _OPENAI,
    "anthropic": (("ANTHROPIC_API_KEY",), ("ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL")),
    "gemini": (("GEMINI_API_KEY",), ("GEMINI_MODEL",)),
    "vertex-ai": (
        ("GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"),
    ),
}


class QwenLogin(Login):
    """Knows how Qwen Code logs in."""

    command = "qwen"

    def variables(self) -> tuple[str, ...]:
        keys, beside = self._of_method()
        models = (model for some in table(self.settings(), "modelProviders").values() for model in dicts_in(some))
        named = (name for model in models if is_variable(name := text_in(model.get("envKey"))))
        return tuple(dict.fromkeys((*keys, *beside, *named)))

    def settled(self) -> frozenset[str]:
        return frozenset(table(self.settings(), "env"))

    def is_plain(self, env: Mapping[str, str]) -> bool:
        if self.auth().get("selectedType") == "qwen-oauth":
            return self.has_stored("oauth_creds.json")
        keys, _ = self._of_method()
        around = {**table(self.settings(), "env"), **env}
        return bool(self.auth().get("apiKey")) or any(around.get(key) for key in keys)

    def _of_method(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return (variables with keys, variables that select a server or model) of the chosen login method."""
        return _WAYS.get(str(self.auth().get("selectedType")), _OPENAI)


class QwenHooks(Hooks):
    """Knows the hooks of Qwen Code: commands that it runs at events."""

    begun = ('"role":"model"', '"forkedFrom":')
    #: npm's script, the process that it starts with more memory, and the process that does the work.
    processes = 3
    events = ("SessionStart", "UserPromptSubmit", "Notification", "Stop", "SessionEnd")
