"""Copilot CLI's servers of a person: ``mcpServers`` in ``mcp-config.json``, as ``copilot mcp add`` writes them.

Seen with 1.0.102: it starts each in the session's directory, with its variables but for those of its model's provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from smart_fork.agents.registration import JsonRegistration


class CopilotRegistration(JsonRegistration):
    """See `Registration`."""

    file = "mcp-config.json"
    client = ("copilot-cli", "2025-11-25")

    def wanted(self, words: Sequence[str], env: Mapping[str, str], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """See `Registration.wanted`. Of a server that names no tools it offers none."""
        return {"type": "local", "tools": ["*"], **super().wanted(words, env, before)}
