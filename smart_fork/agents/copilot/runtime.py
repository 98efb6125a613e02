"""Start commands, processes and screen of Copilot CLI.

Seen with 1.0.102:

* smart-fork can choose the id of a new session, and no option forks a session. So it starts a fork from its own copy,
  in a folder with a file that names the fork's directory;
* ``--resume=ID`` finds a session from everywhere, and resumes it in the session's own directory;
* Copilot CLI takes any prompt after ``=``. A prompt that begins with ``/`` is a command, also without a terminal. On
  its screen a prompt that begins with ``!``, ``?`` or ``#`` is a command as well;
* without a terminal it denies what is not allowed, and does not ask. Permissions that a session was given, and its
  mode, are in the log, and do not count when the session is resumed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from smart_fork.agents.agent_processes import AgentProcesses, ProcessNote, noted_at
from smart_fork.agents.copilot.log_files import sessions
from smart_fork.agents.screen import Screen
from smart_fork.agents.start_command import OptionStarter
from smart_fork.system.processes import Running

_NOTE = re.compile(r"inuse\.([1-9]\d{0,9})\.lock")


class CopilotProcesses(AgentProcesses):
    """Finds Copilot CLI's processes, and the session that each has open."""

    def resumes(self, session_id: str, words: Collection[str]) -> bool:
        return not {f"--resume={session_id}", f"--session-id={session_id}", session_id}.isdisjoint(words)

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """Yield the processes with an ``inuse.<pid>.lock`` file in a session's folder; some of them may have ended."""
        for folder in {sessions(), *((log.parent.parent,) if log else ())}:
            for path in folder.glob("*/inuse.*.lock"):
                if found := _NOTE.fullmatch(path.name):
                    one = session_id if log and path.parent == log.parent else path.parent.name
                    yield ProcessNote(int(found[1]), one, noted_at(path))


class CopilotScreen(Screen):
    """Reads Copilot CLI's terminal screen."""

    typed = re.compile(r"^ ?\u276f(\s*|\s+(?!\d[.)]\s).*)$")
    busy = re.compile(r"^\s*[○◉●◎]\s+\w+.*\besc (interrupt|cancel|esc\b)")
    shows_rest = True


class CopilotStarter(OptionStarter):
    """Makes the commands to start Copilot CLI, which itself forks only by a command on its screen."""

    asking = ("--mode=interactive",)
    unasked = ("--allow-all",)
    interactive, joined = "--interactive", True
    commands = ("/", "!", "?", "#")
