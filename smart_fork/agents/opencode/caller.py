"""Which session of OpenCode calls: our plugin adds it to each call. One process serves all sessions of the program."""

from __future__ import annotations

from smart_fork.agents.calls import Calls, ClientCall

#: No tool of ours has a parameter of this name.
ARGUMENT = "calling_session"


class OpenCodeCalls(Calls):
    """See `Calls`."""

    argument = ARGUMENT

    def session_id(self, call: ClientCall) -> str | None:
        """See `Calls.session_id`."""
        named = call.arguments.get(ARGUMENT)
        return named if isinstance(named, str) else None
