"""Gemini CLI's servers of a person: ``mcpServers`` in its ``settings.json``, as ``gemini mcp add -s user`` writes them.

Seen with 0.61: without a terminal it offers only the tools of servers that it is told to trust. It starts each in the
project, with its variables but for those that look like secrets.
"""

from __future__ import annotations

from collections.abc import Mapping

from smart_fork.agents.registration import JsonRegistration


class GeminiRegistration(JsonRegistration):
    """See `Registration`."""

    client = ("gemini-cli-mcp-client", "2025-06-18")
    said: Mapping[str, str] = {"GEMINI_CLI": "1"}
