"""Gemini CLI's servers of a person: ``mcpServers`` in its ``settings.json``, as ``gemini mcp add -s user`` writes them.

Seen with 0.61: without a terminal it offers only the tools of servers that it is told to trust. It starts each in the
project, with its variables but for those that look like secrets.
"""

from __future__ import annotations

from collections.abc import Mapping

from indexer.transcripts.model import AgentName
from smart_fork.agents.gemini import Gemini
from smart_fork.agents.gemini.home import HOME
from smart_fork.agents.registration.json_entry import JsonRegistration


class GeminiRegistration(JsonRegistration):
    """See `Registration`."""

    agent: AgentName = "gemini"
    title = Gemini.title
    place = HOME
    client = ("gemini-cli-mcp-client", "2025-06-18")
    of_a_session = (*Gemini.tells, *JsonRegistration.of_a_session)
    said: Mapping[str, str] = {"GEMINI_CLI": "1"}
