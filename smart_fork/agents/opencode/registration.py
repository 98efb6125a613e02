"""OpenCode's servers of a person: ``mcp`` in ``opencode.json``.

Seen with 1.18: it merges that file with an ``opencode.jsonc`` beside it, so one that has comments is left alone. A call
of a tool ends after the entry's ``timeout``, or a minute without progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from indexer.values import list_in
from smart_fork.agents.opencode import settings_folder
from smart_fork.agents.registration import JsonRegistration

_DEFAULTS: Mapping[str, Any] = {"enabled": True, "timeout": 300_000}


class OpenCodeRegistration(JsonRegistration):
    """See `Registration`."""

    client = ("opencode", "2025-11-25")
    file = "opencode.json"
    servers, variables = "mcp", "environment"
    said: Mapping[str, str] = {"OPENCODE": "1"}

    def home(self) -> Path:
        return settings_folder()

    def skills(self) -> Path:
        """See `Registration.skills`: shared with other agents. It reads those of Claude Code as well."""
        return Path.home() / ".agents" / "skills"

    def argv(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        """See `Registration.argv`: one list."""
        return tuple(map(str, list_in(entry.get("command"))))

    def wanted(self, words: Sequence[str], env: Mapping[str, str], before: Mapping[str, Any] | None) -> dict[str, Any]:
        return {**_DEFAULTS, **(before or {}), "type": "local", "command": [*words]}
