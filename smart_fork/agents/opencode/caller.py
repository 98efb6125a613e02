"""Which session of OpenCode calls: our plugin adds it to each call. One process serves all sessions of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smart_fork.agents.calls import ClientCall

#: No tool of ours has a parameter of this name.
ARGUMENT = "calling_session"


class OpenCodeCalls:
    """See `Calls`."""

    argument: str | None = ARGUMENT

    def session_id(self, call: ClientCall) -> str | None:
        """See `Calls.session_id`."""
        named = call.arguments.get(ARGUMENT)
        return named if isinstance(named, str) else None

    def workspaces(self, meta: Mapping[str, Any]) -> list[str]:
        """See `Calls.workspaces`: it names roots instead."""
        return []
