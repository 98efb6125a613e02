"""An agent's hooks: the settings file, the events, and the commands that the agent runs at events.

smart-fork installs either a handler for each event in a JSON settings file, beside other handlers, or a file of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from smart_fork.agents.agent import AgentFacet

#: Seconds after which the agent stops waiting. Codex waits at most three at a session's end.
TIMEOUT = 3


class Hooks(AgentFacet):
    """The facet that knows one agent's hooks. The defaults are for agents without the feature."""

    #: The events at which it runs our command; none for a file of our own.
    events: tuple[str, ...] = ()
    #: The tools that edit files, as a pattern of the agent's, if the model gets what our command prints before them.
    edits: str = ""
    #: The event after a command that failed, and the tools that run commands, if the model gets what is printed then.
    failures: tuple[str, str] = ("", "")
    #: `True` if the model gets what our command prints at a prompt, in Claude Code's form.
    recalls: bool = True
    #: The most processes of the agent, each started by the other. A script installed by npm is one.
    processes: int = 2
    #: Text in a log from the first answer on, or in a log that continues another, beyond what `hooks.recall` knows.
    begun: tuple[str, ...] = ()

    #: The settings file in the agent's own folder.
    file: str = "settings.json"

    def path(self) -> Path:
        """Return the path of the file with the agent's hooks."""
        return self.of.home.folder() / self.file

    def content(self, command: Sequence[str]) -> str | None:
        """Return the text of a hook file of smart-fork's own, which passes each event on stdin to `command`.

        `None` if the agent has hooks in its settings. The file does nothing if `command` is gone. Its first line
        identifies it, and never changes.
        """
        return None

    def distrusting(self, left: str) -> tuple[Path, str, str] | None:
        """Return the settings that note which hooks a person trusts, with their text before and without smart-fork's
        hooks.

        `left` is the text of the hooks file without smart-fork's hooks. `None` if nothing is noted.

        Raises:
            OSError, ValueError: The settings cannot be read or are not understood.
        """
        return None

    def handler(self, command: str) -> dict[str, Any]:
        """Return the settings entry with which a shell runs `command`."""
        return {"type": "command", "command": command, "timeout": TIMEOUT}

    def notes(self, text: str) -> Iterator[str]:
        """Yield the reasons why the agent does not run hooks with the settings in `text`. smart-fork does not change
        these.

        Most settings have Claude Code's format.
        """
        import json  # an event is told without

        if self.events and json.loads(text).get("disableAllHooks") is True:
            yield f"{self.title} runs no hooks: disableAllHooks is set in its settings"

    def event(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an event with Claude Code's names of events and values."""
        return said

    def in_background(self, runner: Sequence[str] | None) -> bool:
        """Return True if a process with these words runs the hooks of several terminals. `None` stands for unknown
        words.

        The environment of such a process does not tell the session. An agent with one has a module `daemon`;
        `smart_fork.hooks` looks for this file without importing anything.
        """
        return False
