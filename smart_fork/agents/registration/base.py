"""What is common to all agents' registrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import Any, NamedTuple, Protocol

from indexer.transcripts.model import AgentName
from smart_fork.errors import SmartForkError

#: Under which the agents know our server.
NAME = "smart-fork"
ARGUMENTS = ("mcp",)


class UnsuitableError(SmartForkError):
    """Settings that cannot be edited safely, and why."""

    code = "unsuitable_settings"
    usual_hint = "Correct the file by hand."


class Allowing(NamedTuple):
    """Rules by which an agent runs tools without asking, and the file that has them."""

    path: Path
    rules: tuple[str, ...]


class Registration(Protocol):
    """The entry of our server in an agent's settings. Texts go in and out; nothing here writes a file."""

    agent: AgentName
    title: str
    #: What the agent calls itself to a server, and the version of the protocol that it speaks.
    client: tuple[str, str]

    def path(self) -> Path:
        """The file that has the entry."""
        ...

    def home(self) -> Path:
        """The agent's own folder."""
        ...

    def skills(self) -> Path | None:
        """The folder of a person's skills that the agent reads; `None` where it reads none."""
        ...

    def allowing(self, tools: Sequence[str]) -> Allowing | None:
        """The rules by which it runs these reading tools without asking; `None` where it does so by itself."""
        ...

    def argv(self, entry: Mapping[str, Any]) -> tuple[str, ...]:
        """What an entry starts; nothing for one of an address, or of another form."""
        ...

    def value(self, text: str | None) -> dict[str, Any] | None:
        """The entry of our name, whoever has made it; `None` without one.

        Raises:
            UnsuitableError: the settings are not understood.
        """
        ...

    def raw(self, text: str | None) -> str | None:
        """The same as it is written."""
        ...

    def put(self, text: str | None, entry: Mapping[str, Any]) -> str:
        """`text` with `entry` as the entry of our name. All other bytes stay, but for a line's end before it.

        Raises:
            UnsuitableError: it cannot be put there safely.
        """
        ...

    def has_servers(self, text: str | None) -> bool:
        """Whether the settings have a place for servers, be it empty."""
        ...

    def restore(self, text: str, raw: str | None, *, had_servers: bool = True) -> str:
        """`text` with what `raw` has said instead of the entry; with `None`, without any.

        Without `had_servers` the place for servers goes as well, where nothing is left in it.

        Raises:
            UnsuitableError: that cannot be done safely.
        """
        ...

    def wanted(self, program: str, env: Mapping[str, str], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """The entry that starts `program`; of one that is there, `before`, what a person has chosen stays."""
        ...

    def environment(self, env: Mapping[str, str], entry: Mapping[str, Any]) -> dict[str, str]:
        """What the agent, run with `env`, starts the server of `entry` with."""
        ...

    def holders(self) -> tuple[Path, ...]:
        """Files that may have an entry of the service's address, with its token. They need not exist."""
        ...

    def over_http(self, url: str, token: str) -> str:
        """A command for a shell that registers the service at `url`, whose token the file `token` has; or nothing."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Held while the file is written, so that the agent does not write at the same time."""
        ...


def argv(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """What an entry with a ``command`` and its ``args`` starts; nothing for any other."""
    command, arguments = entry.get("command"), entry.get("args", [])
    if not isinstance(command, str) or not isinstance(arguments, list):
        return ()
    return (command, *(str(word) for word in arguments))


def is_ours(words: Sequence[str]) -> bool:
    """Whether an entry of our name that starts these words starts smart-fork, from wherever."""
    return bool(words) and (PurePath(words[0]).name == NAME or NAME in words[1:] or "smart_fork" in words[1:])
