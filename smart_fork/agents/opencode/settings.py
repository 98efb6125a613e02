"""OpenCode's settings: MCP servers, login and hooks.

Seen with 1.18:

* Servers are ``mcp`` in ``opencode.json``. OpenCode merges that file with an ``opencode.jsonc`` beside it, so
  smart-fork leaves a file with comments alone. A tool call ends after the entry's ``timeout``, or a minute without
  progress.
* The login is what ``opencode auth login`` stored, a provider in the settings, or a provider's variable. OpenCode also
  answers without a login, with models that it offers itself.
* The hooks are a plugin of smart-fork, which OpenCode loads without asking. It sends events in Claude Code's form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from indexer.json_values import list_in
from smart_fork.agents.agent import CallerIdentity, ClientCall
from smart_fork.agents.hooks import Hooks
from smart_fork.agents.login import Login
from smart_fork.agents.mcp_registration import NAME, JsonRegistration
from smart_fork.agents.opencode import settings_folder


class OpenCodeRegistration(JsonRegistration):
    """The registration of smart-fork's MCP server in ``opencode.json``."""

    client = ("opencode", "2025-11-25")
    file = "opencode.json"
    servers, variables = "mcp", "environment"
    said: Mapping[str, str] = {"OPENCODE": "1"}

    def home(self) -> Path:
        return settings_folder()

    def skills(self) -> Path:
        """Return ``~/.agents/skills``, which several agents share. OpenCode also reads Claude Code's skills."""
        return Path.home() / ".agents" / "skills"

    def argv(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the command line of a server's entry, which has program and arguments in a single list."""
        return tuple(map(str, list_in(entry.get("command"))))

    def wanted(self, words: Sequence[str], env: Mapping[str, str], before: Mapping[str, Any] | None) -> dict[str, Any]:
        return {"enabled": True, "timeout": 300_000, **(before or {}), "type": "local", "command": [*words]}


class OpenCodeLogin(Login):
    """Knows how OpenCode logs in."""

    command = "opencode auth login"
    stored = "auth.json"
    #: The variables with the keys of the most common providers; OpenCode knows about a hundred providers.
    keys = (
        "OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY",
        "OPENROUTER_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "XAI_API_KEY", "DEEPSEEK_API_KEY",
    )  # fmt: skip
    #: Variables with the places of its settings and sessions, or with further settings.
    beside = ("OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", "OPENCODE_CONFIG_CONTENT", "OPENCODE_DB", "XDG_CONFIG_HOME")


class OpenCodeCaller(CallerIdentity):
    """Finds the session of OpenCode that made a tool call: smart-fork's plugin adds the session's id to each call."""

    #: The argument with the calling session's id. No tool of smart-fork has a parameter of this name.
    argument = "calling_session"

    def session_id(self, call: ClientCall) -> str | None:
        named = call.arguments.get(self.argument)
        return named if isinstance(named, str) else None


class OpenCodeHooks(Hooks):
    """Knows smart-fork's plugin for OpenCode, which passes OpenCode's events to smart-fork."""

    #: False, because OpenCode does not pass on to its model what a hook's command prints.
    recalls = False

    def path(self) -> Path:
        return settings_folder() / "plugins" / f"{NAME}.js"

    def content(self, command: Sequence[str]) -> str:
        text = files("smart_fork.agents.opencode").joinpath("plugin.js").read_text(encoding="utf-8")
        values = {"COMMAND": list(command), "TOOLS": f"{NAME}_", "ARGUMENT": OpenCodeCaller.argument}
        for name, value in values.items():
            text = text.replace(f'"@{name}@"', json.dumps(value))
        return text
