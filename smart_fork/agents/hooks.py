"""How an agent tells what its sessions do: what it runs at which event, where it reads that, and what it says then.

What we install is either a handler for each event in a JSON file of settings, beside those of others, or a file that is
ours alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from indexer.transcripts.model import AgentName

#: Seconds after which the agent goes on without us. Codex gives a session's end three at most.
TIMEOUT = 3


def switched_off(settings: str, title: str) -> Iterator[str]:
    """What is said where settings in the form of Claude Code's keep the agent of that title from running any hook."""
    import json  # an event is told without

    if json.loads(settings).get("disableAllHooks") is True:
        yield f"{title} runs no hooks: disableAllHooks is set in its settings"


class Hooks(ABC):
    """The hooks of one agent. What only some have is here as those have it that do not."""

    agent: AgentName
    #: At which it runs our command; of a file that is ours alone, none.
    events: tuple[str, ...] = ()
    #: Whether what our command prints at a prompt gets before the model, in the form of Claude Code.
    recalls: bool = True
    #: How many processes the agent is at most, one started by the other: a script that npm has put there is one.
    processes: int = 2
    #: What a log has from the first answer on, or when it goes on from another one, beside what `hooks.recall` knows.
    begun: tuple[str, ...] = ()

    @abstractmethod
    def path(self) -> Path:
        """The file that it reads its hooks from."""

    def content(self, command: Sequence[str]) -> str | None:
        """All of a file that is ours alone, which gives each event on stdin to `command`; `None` for settings.

        It is silent where `command` is gone. Its first line tells it from files of others, and never changes.
        """
        del command
        return None

    def handler(self, command: str) -> dict[str, Any]:
        """What stands in its settings to have a shell run `command`."""
        return {"type": "command", "command": command, "timeout": TIMEOUT}

    def notes(self, text: str) -> Iterator[str]:
        """What keeps the agent from running what is installed as `text`. Nothing of it is ours to change."""
        del text
        yield from ()

    def event(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """An event as Claude Code would say it: with its names of events and of values."""
        return said

    def in_background(self, runner: Sequence[str] | None) -> bool:
        """Whether a process with these words, `None` where they are not known, runs the hooks of several terminals.

        The environment of such a process says nothing of the session. An agent that has one has a module `daemon`, by
        which `smart_fork.hooks` knows it without importing anything.
        """
        del runner
        return False
