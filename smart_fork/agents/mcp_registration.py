"""The registration of smart-fork's MCP server in an agent's settings."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePath
from shutil import which
from typing import Any, ClassVar

from smart_fork import json_edit
from smart_fork.agents.description import AgentFacet
from smart_fork.errors import SmartForkError

#: The name of our server in the agents' settings.
NAME = "smart-fork"


class UnsuitableError(SmartForkError):
    """The error for settings of an agent that smart-fork cannot edit safely, with the reason."""

    code = "unsuitable_settings"
    usual_hint = "Correct the file by hand."


class Registration(AgentFacet, ABC):
    """The entry of smart-fork's MCP server in one agent's settings. Methods return changed texts, and write no file."""

    #: The agent's name for itself in MCP, and its protocol version.
    client: tuple[str, str]
    #: The settings file in the agent's own folder.
    file: str
    #: The key of a server's variables in an entry.
    variables = "env"
    NAME: ClassVar = NAME

    @staticmethod
    def is_ours(words: Sequence[str]) -> bool:
        """Return True if the command `words` starts smart-fork, wherever it is installed."""
        return bool(words) and (PurePath(words[0]).name == NAME or NAME in words[1:] or "smart_fork" in words[1:])

    @staticmethod
    def settings_in(text: str) -> dict[str, Any]:
        """Return the settings in a JSON text.

        Raises:
            UnsuitableError: The text is not plain JSON.
        """
        try:
            return json_edit.read_object(text)
        except (ValueError, RecursionError) as error:
            raise UnsuitableError(f"it is not plain JSON: {error}") from error

    def path(self) -> Path:
        """Return the path of the settings file with the entry."""
        return self.home() / self.file

    def home(self) -> Path:
        """Return the agent's own folder."""
        return self.of.home.folder()

    def skills(self) -> Path | None:
        """Return the folder of a person's skills that the agent reads; `None` if it reads none."""
        return self.home() / "skills"

    def permission_file(self) -> Path:
        """Return the path of the settings file that has `permission_rules`."""
        return self.path()

    def permission_rules(self, tools: Sequence[str]) -> tuple[str, ...]:
        """Return the rules that let the agent call `tools` (read-only) without asking; empty if it needs no rules."""
        return ()

    def argv(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the command words of a server's entry; empty if it has none, such as one with an address."""
        command, arguments = entry.get("command"), entry.get("args", [])
        if not isinstance(command, str) or not isinstance(arguments, list):
            return ()
        return (command, *(str(word) for word in arguments))

    @abstractmethod
    def value(self, text: str | None) -> dict[str, Any] | None:
        """Return smart-fork's entry in the settings `text`, even if a person made it; `None` if there is none.

        Raises:
            UnsuitableError: The settings are not understood.
        """

    def starts(self) -> bool:
        """Return True if the agent's settings start smart-fork's server, from a program that exists."""
        try:
            entry = self.value(self.path().read_text("utf-8")) or {}
        except (OSError, ValueError, UnsuitableError):
            return False
        words = self.argv(entry)
        return self.is_ours(words) and which(words[0]) is not None and entry.get("enabled") is not False

    @abstractmethod
    def raw(self, text: str | None) -> str | None:
        """Return the text of smart-fork's entry in the settings, to restore it later; `None` if there is none."""

    @abstractmethod
    def put(self, text: str | None, entry: Mapping[str, Any]) -> str:
        """Return the settings `text` with smart-fork's `entry`. All other bytes stay; a line end may be added.

        Raises:
            UnsuitableError: The entry cannot be put there safely.
        """

    @abstractmethod
    def has_servers(self, text: str | None) -> bool:
        """Return True if the settings have the part that lists MCP servers, even if it is empty."""

    @abstractmethod
    def restore(self, text: str, raw: str | None, *, had_servers: bool = True) -> str:
        """Return the settings with the earlier entry `raw` instead of smart-fork's entry; without `raw`, with no entry.

        Unless `had_servers`, the part that lists MCP servers is removed too if that leaves it empty.

        Raises:
            UnsuitableError: The entry cannot be removed safely.
        """

    def wanted(self, words: Sequence[str], env: Mapping[str, str], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the entry that starts the command `words`, with the further fields of the entry `before`."""
        ours = {"command": words[0], "args": list(words[1:])}
        return {**ours, **(before or {}), **ours}

    @abstractmethod
    def passed_on(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables, with values, that the agent passes to every server if it runs with `env`."""

    def environment(self, env: Mapping[str, str], entry: Mapping[str, Any]) -> dict[str, str]:
        """Return the environment with which the agent starts the server of `entry` if it runs with `env` itself."""
        own = entry.get(self.variables)
        more = {str(name): str(value) for name, value in own.items()} if isinstance(own, dict) else {}
        return self.passed_on(env) | more

    def holders(self) -> tuple[Path, ...]:
        """Return the files, which need not exist, that may contain the address and token of smart-fork's service."""
        return (self.path(),)

    def over_http(self, url: str, token: str) -> str:
        """Return a shell command that registers smart-fork's HTTP service at `url`, and reads the token from a file.

        `token` is the file's path. Return an empty text if the agent has no such command.
        """
        return ""

    def lock(self) -> AbstractContextManager[None]:
        """Return a context that holds the agent's own lock of the settings file; most agents have none."""
        return nullcontext()


def entry_in(settings: Mapping[str, Any], servers: str, kind: str) -> dict[str, Any] | None:
    """Return smart-fork's entry in the field `servers` of the settings; `None` if there is none.

    Raises:
        UnsuitableError: The field or the entry is no object; `kind` is the settings' word for one, such as "a table".
    """
    listed = settings.get(servers, {})
    found = listed.get(NAME) if isinstance(listed, dict) else None
    for name, value in ((servers, listed), (f"{servers}.{NAME}", {} if found is None else found)):
        if not isinstance(value, dict):
            raise UnsuitableError(f"{name} in it is not {kind}")
    return found


class JsonRegistration(Registration):
    """The registration of smart-fork's server in settings that are plain JSON. Subclasses name the file."""

    file = "settings.json"
    #: The key of the servers in the settings.
    servers = "mcpServers"
    #: Variables that the agent sets for all its servers, also for those that no session starts.
    said: Mapping[str, str] = {}

    def value(self, text: str | None) -> dict[str, Any] | None:
        return None if text is None else entry_in(self.settings_in(text), self.servers, "an object")

    def raw(self, text: str | None) -> str | None:
        if text is None or self.value(text) is None:
            return None
        entry = self._entry(text)
        return text[entry.value : entry.end] if entry else None

    def put(self, text: str | None, entry: Mapping[str, Any]) -> str:
        if text is None:
            return json.dumps({self.servers: {NAME: entry}}, indent=2) + "\n"
        self.value(text)
        there = self._entry(text)
        return json_edit.replace(text, there, entry) if there else json_edit.insert(text, (self.servers,), entry, NAME)

    def has_servers(self, text: str | None) -> bool:
        return text is not None and self.servers in self.settings_in(text)

    def restore(self, text: str, raw: str | None, *, had_servers: bool = True) -> str:
        self.value(text)
        there = self._entry(text)
        if there is None:
            return text
        if raw is not None:
            return text[: there.value] + raw + text[there.end :]
        way = (self.servers,)
        return json_edit.withdraw(text, way, there, {way: ""} if had_servers else {})

    def passed_on(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the agent's whole environment, without the variables that name a session."""
        of_a_session = (*self.of.tells, "SMART_FORK_WORKER_ID")
        return {name: value for name, value in env.items() if name not in of_a_session} | dict(self.said)

    def _entry(self, text: str) -> json_edit.JsonItem | None:
        servers = json_edit.member(text, json_edit.root(text), self.servers)
        return json_edit.member(text, servers.value, NAME) if servers else None
