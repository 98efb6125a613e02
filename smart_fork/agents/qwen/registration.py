"""Qwen Code's servers of a person: ``mcpServers`` in its ``settings.json``, as ``qwen mcp add -s user`` writes them.

Seen with 0.24: it waits for its servers before the first request, and starts each in the project with all variables
that it has itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from smart_fork.agents.registration import NAME, JsonRegistration, PermissionRules


class QwenRegistration(JsonRegistration):
    """See `Registration`."""

    #: The server's own name is the end of it.
    client = (f"qwen-cli-mcp-client-{NAME}", "2025-11-25")

    def allowing(self, tools: Sequence[str]) -> PermissionRules | None:
        return PermissionRules(self.path(), tuple(f"mcp__{NAME}__{tool}" for tool in tools))
