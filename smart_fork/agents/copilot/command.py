"""Starts Copilot CLI.

Seen with 1.0.102:

* the id of a new session can be chosen; there is no option to fork one. So what is forked is a copy of ours, which has
  a folder of its own that says where it works;
* ``--resume=ID`` finds a session from everywhere, and goes on in the session's own directory;
* a prompt is taken behind ``=``, whatever it begins with; one that begins with ``/`` is a command of its own, also
  without a terminal, and on its screen one with ``!``, ``?`` or ``#`` as well;
* without a terminal it does not ask: what is not allowed is denied. What was allowed in a session, and that it worked
  by itself, stands in its log and counts for nothing when it is gone on with.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from smart_fork.agents.agent_processes import Presence, ProcessNote, noted_at
from smart_fork.agents.copilot.log import sessions
from smart_fork.agents.screen import Screen
from smart_fork.agents.starter import OptionStarter
from smart_fork.system.processes import Running

_NOTE = re.compile(r"inuse\.([1-9]\d{0,9})\.lock")


class CopilotPresence(Presence):
    """See `Presence`."""

    def goes_on_in(self, session_id: str, words: Collection[str]) -> bool:
        """See `Presence.goes_on_in`: its options are one word each with what they name."""
        return bool({f"--resume={session_id}", f"--session-id={session_id}", session_id} & set(words))

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """See `Presence.notes`: a file in the folder of each session. It may stay when the process has ended."""
        for folder in {sessions(), *((log.parent.parent,) if log else ())}:
            for path in folder.glob("*/inuse.*.lock"):
                if found := _NOTE.fullmatch(path.name):
                    one = session_id if log and path.parent == log.parent else path.parent.name
                    yield ProcessNote(int(found[1]), one, noted_at(path))


class CopilotScreen(Screen):
    """See `Screen`."""

    typed = re.compile(r"^ ?\u276f(\s*|\s+(?!\d[.)]\s).*)$")
    busy = re.compile(r"^\s*[○◉●◎]\s+\w+.*\besc (interrupt|cancel|esc\b)")
    shows_rest = True


class CopilotStarter(OptionStarter):
    """The command lines of Copilot CLI. Its own way to fork is a command on its screen."""

    asking = ("--mode=interactive",)
    unasked = ("--allow-all",)
    interactive, joined = "--interactive", True
    commands = ("/", "!", "?", "#")
