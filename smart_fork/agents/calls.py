"""What a call of our tools says of the session that makes it, where an agent's variables do not say it all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class ClientCall(NamedTuple):
    """One call as the agent has sent it. `environment` is that of a process that it starts, `project` its directory.

    All of it is text from another program.
    """

    meta: Mapping[str, Any]
    arguments: Mapping[str, Any]
    environment: Mapping[str, str]
    project: str | None


class Calls(Protocol):
    """How an agent's calls name its session, and the directories that it works in."""

    #: An argument of each call in which something of ours inside the agent names the session; no tool ever sees it.
    argument: str | None

    def session_id(self, call: ClientCall) -> str | None:
        """The session that a call names; `None` where only the environment may know it."""
        ...

    def workspaces(self, meta: Mapping[str, Any]) -> list[str]:
        """The directories that the data of a request say that the agent works in."""
        ...
