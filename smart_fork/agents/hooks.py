"""An agent's hooks: commands that the agent runs at events.

smart-fork writes either a handler for each event into a JSON settings file, beside other handlers, or a hook file of
its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from smart_fork.agents.description import AgentFacet

#: Seconds after which the agent stops waiting. Codex waits at most three at a session's end.
TIMEOUT = 3


class Hooks(AgentFacet):
    """Knows an agent's hooks: commands that it runs at events. The defaults are for agents without hooks."""

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

    @property
    def tool_events(self) -> tuple[tuple[str, str], ...]:
        """The events of tool calls at which the model gets what our command prints, with patterns of the tools."""
        return tuple((event, tools) for event, tools in (("PreToolUse", self.edits), self.failures) if tools)

    def path(self) -> Path:
        """Return the path of the file with the agent's hooks."""
        return self.of.home.folder() / self.file

    def content(self, command: Sequence[str]) -> str | None:
        """Return the text of smart-fork's own hook file, which passes each event on stdin to `command`.

        Return `None` if the agent's hooks are in its settings. If `command` no longer exists, the hook file does
        nothing. Its first line, by which smart-fork recognizes the file, never changes.
        """
        return None

    def distrusting(self, left: str) -> tuple[Path, str, str] | None:
        """Return the path of the agent's file that lists trusted hooks, its text, and the text without smart-fork's.

        Return `None` if it lists none of smart-fork's. `left` is the text of the hooks file without smart-fork's hooks.

        Raises:
            OSError, ValueError: The settings cannot be read or are not understood.
        """
        return None

    def handler(self, command: str) -> dict[str, Any]:
        """Return the settings entry of a hook that runs the shell command `command`."""
        return {"type": "command", "command": command, "timeout": TIMEOUT}

    def notes(self, text: str) -> Iterator[str]:
        """Yield the reasons why the agent does not run hooks with the settings in `text`, in Claude Code's format."""
        if self.events and json.loads(text).get("disableAllHooks") is True:
            yield f"{self.title} runs no hooks: disableAllHooks is set in its settings"

    def event(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the event `said`, which the agent passed to a hook, with Claude Code's names and values."""
        return said

    def in_background(self, runner: Sequence[str] | None) -> bool:
        """Return True if `runner`, the command line that ran a hook (or `None`), is a daemon for several terminals.

        The environment of a daemon does not tell the session. An agent with a daemon has a module `daemon`:
        `smart_fork.hooks`, which must start fast, looks for the module's file and imports nothing.
        """
        return False
