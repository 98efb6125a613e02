"""Start commands, processes and screen of Qwen Code.

Seen with 0.24:

* smart-fork can choose the id of a new session, but not a fork's: ``--fork-session`` refuses ``--session-id``. So
  smart-fork starts a fork from its own copy, in the folder that belongs to the fork's directory;
* Qwen Code takes any prompt after ``=``, even if it begins with a hyphen, but no prompt after ``--``;
* on its screen a prompt that begins with ``/``, also after blanks, is a command of Qwen Code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from indexer.json_values import dict_in, json_at
from smart_fork.agents.agent_processes import AgentProcesses, ProcessNote, noted_at
from smart_fork.agents.screen import Screen
from smart_fork.agents.start_command import OptionStarter
from smart_fork.system.processes import Running


class QwenProcesses(AgentProcesses):
    """Finds Qwen Code's processes, and the session that each has open."""

    forks = ("--fork-session",)

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """Yield the processes in ``*.runtime.json`` files beside the log; some may have ended."""
        for path in log.parent.glob("*.runtime.json") if log else ():
            note = dict_in(json_at(path))
            named = path.name.removesuffix(".runtime.json")
            if type(pid := note.get("pid")) is int and note.get("session_id") == named:
                yield ProcessNote(pid, named, noted_at(path, note.get("started_at")))


class QwenScreen(Screen):
    """Reads Qwen Code's terminal screen."""

    typed = re.compile(r"^[>*!](\s|$)")
    keys = re.compile(r"Waiting for user confirmation|" + Screen.keys.pattern, re.IGNORECASE)
    above = re.compile(r"^\s*([─━]{10,}|[>◆●✦✓✕╭╰│].*)$")
    busy = re.compile(r"\(\d+[hms][^()]* · esc to cancel\)|\(\d+[hms] · esc to cancel\)")
    shows_rest = True


class QwenStarter(OptionStarter):
    """Makes the commands to start Qwen Code."""

    forks = ("qwen", "--resume", "ID", "--fork-session")
    commands, always = ("/",), False
