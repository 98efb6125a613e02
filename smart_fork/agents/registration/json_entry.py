"""An entry in JSON settings with all servers in one object, by name.

Other programs keep other settings in the same file. So the entry is inserted as text, and can be removed to the byte if
the agent has not written the file meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from smart_fork.agents.registration.base import NAME, Registration, UnsuitableError
from smart_fork.text import json_text


class JsonRegistration(Registration):
    """See `Registration`. An agent overrides its file, and what differs."""

    file = "settings.json"
    #: The key of the servers in the settings.
    servers = "mcpServers"
    #: Variables that the agent sets for all its servers, also for those that no session starts.
    said: Mapping[str, str] = {}

    def value(self, text: str | None) -> dict[str, Any] | None:
        """See `Registration.value`."""
        if text is None:
            return None
        servers = _understood(text).get(self.servers, {})
        if not isinstance(servers, dict):
            raise UnsuitableError(f'"{self.servers}" in it is not an object')
        found = servers.get(NAME)
        if found is not None and not isinstance(found, dict):
            raise UnsuitableError(f'"{NAME}" in it is not an object')
        return found

    def raw(self, text: str | None) -> str | None:
        """See `Registration.raw`."""
        if text is None or self.value(text) is None:
            return None
        entry = self._entry(text)
        return text[entry.value : entry.end] if entry else None

    def put(self, text: str | None, entry: Mapping[str, Any]) -> str:
        """See `Registration.put`."""
        if text is None:
            return json.dumps({self.servers: {NAME: entry}}, indent=2) + "\n"
        self.value(text)
        there = self._entry(text)
        return json_text.replace(text, there, entry) if there else json_text.insert(text, (self.servers,), entry, NAME)

    def has_servers(self, text: str | None) -> bool:
        """See `Registration.has_servers`."""
        return text is not None and self.servers in _understood(text)

    def restore(self, text: str, raw: str | None, *, had_servers: bool = True) -> str:
        """See `Registration.restore`."""
        self.value(text)
        there = self._entry(text)
        if there is None:
            return text
        if raw is not None:
            return text[: there.value] + raw + text[there.end :]
        way = (self.servers,)
        return json_text.withdraw(text, way, there, {way: ""} if had_servers else {})

    def passed_on(self, env: Mapping[str, str]) -> dict[str, str]:
        """See `Registration.passed_on`: the agent's whole environment, without what says of a session."""
        of_a_session = (*self.of.tells, "SMART_FORK_WORKER_ID")
        return {name: value for name, value in env.items() if name not in of_a_session} | dict(self.said)

    def _entry(self, text: str) -> json_text.Item | None:
        servers = json_text.member(text, json_text.root(text), self.servers)
        return json_text.member(text, servers.value, NAME) if servers else None


def _understood(text: str) -> dict[str, Any]:
    try:
        return json_text.read_object(text)
    except (ValueError, RecursionError) as error:
        raise UnsuitableError(f"it is not plain JSON: {error}") from error
