"""Identifies the session that calls one of our tools, if an agent's variables are not enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class ClientCall(NamedTuple):
    """One tool call from an agent: `environment` of the server's process, `project` its directory.

    All of it is untrusted text.
    """

    meta: Mapping[str, Any]
    arguments: Mapping[str, Any]
    environment: Mapping[str, str]
    project: str | None


class Calls:
    """Identifies the session and the directories in one agent's calls."""

    #: An argument with the session's id, added to each call by our code inside the agent. Tools never see it.
    argument: str | None = None

    def session_id(self, call: ClientCall) -> str | None:
        """Return the session that a call names; `None` if only the environment can tell."""
        return None

    def workspaces(self, meta: Mapping[str, Any]) -> list[str]:
        """Return the directories in which the agent works, by the request's data; none if it names roots instead."""
        return []
