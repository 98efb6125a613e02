"""How Qwen Code is started.

Seen with 0.24:

* the id of a new session can be chosen, that of a fork (``--fork-session``) cannot: ``--session-id`` is refused beside
  it. So what is forked is a copy of ours, which has its own id, and lies where it is found from the fork's directory;
* a prompt behind ``--`` is not taken; behind ``=`` anything is, also what begins with a hyphen;
* on its screen a prompt that begins with ``/`` is a command of its own, blanks before it or not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from indexer.unchecked import dict_in, json_at
from smart_fork.agents.questions import Screen
from smart_fork.agents.qwen.log import QwenAdapter
from smart_fork.agents.starter import OptionStarter, Presence


class QwenPresence(Presence):
    """See `Presence`."""

    def noted(self, session_id: str) -> Collection[int]:
        """See `Presence.noted`. The note stays when the process has ended."""
        return {pid for log in QwenAdapter().locate(session_id) for pid in process_of(log)}


#: The processes of this agent.
PRESENCE = QwenPresence(("qwen",), forks=("--fork-session",))


def process_of(log: Path) -> Iterator[int]:
    """The number of the process that Qwen Code says writes this log; it may have ended."""
    note = dict_in(json_at(log.with_suffix(".runtime.json")))
    pid = note.get("pid")
    if type(pid) is int and pid > 0 and note.get("session_id") == log.stem:
        yield pid


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
