"""Starts Qwen Code.

Seen with 0.24:

* the id of a new session can be chosen, that of a fork (``--fork-session``) cannot: ``--session-id`` is refused beside
  it. So what is forked is a copy of ours, which has its own id, and lies where it is found from the fork's directory;
* a prompt behind ``--`` is not taken; behind ``=`` anything is, also what begins with a hyphen;
* on its screen a prompt that begins with ``/`` is a command of its own, blanks before it or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from indexer.values import dict_in, json_at
from smart_fork.agents.agent_processes import Presence, ProcessNote, noted_at
from smart_fork.agents.screen import Screen
from smart_fork.agents.starter import OptionStarter
from smart_fork.system.processes import Running


class QwenPresence(Presence):
    """See `Presence`."""

    forks = ("--fork-session",)

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """See `Presence.notes`: a file beside each log. It stays when the process has ended."""
        for path in log.parent.glob("*.runtime.json") if log else ():
            note = dict_in(json_at(path))
            named = path.name.removesuffix(".runtime.json")
            if type(pid := note.get("pid")) is int and note.get("session_id") == named:
                yield ProcessNote(pid, named, noted_at(path, note.get("started_at")))


class QwenScreen(Screen):
    """See `Screen`."""

    typed = re.compile(r"^[>*!](\s|$)")
    keys = re.compile(r"Waiting for user confirmation|" + Screen.keys.pattern, re.IGNORECASE)
    above = re.compile(r"^\s*([─━]{10,}|[>◆●✦✓✕╭╰│].*)$")
    busy = re.compile(r"\(\d+[hms][^()]* · esc to cancel\)|\(\d+[hms] · esc to cancel\)")
    shows_rest = True


class QwenStarter(OptionStarter):
    """The command lines of Qwen Code."""

    forks = ("qwen", "--resume", "ID", "--fork-session")
    asking = ("--approval-mode", "default")
    unasked = ("--yolo",)
    commands, always = ("/",), False
