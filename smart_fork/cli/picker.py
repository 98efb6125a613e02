"""``smart-fork`` alone at a terminal: the newest sessions of the project to choose from, by fzf where it is installed.

Titles are hostile. fzf gets them as lines on its stdin, and of a line only the id, which is checked, reaches a command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from smart_fork.cli.output import out, plain, say
from smart_fork.cli.short_ids import is_id

Action = Literal["fork", "open", "copy"]
OFFERED = 100
#: What to type first, for who does not know.
FIRST = 'Search by meaning: smart-fork find "what you want to do next"'
#: Lines of the terminal that the list leaves for what is above and below it.
_AROUND = 5
_KEYS: dict[str, Action] = {"": "fork", "ctrl-o": "open", "ctrl-y": "copy"}
_LETTERS: dict[str, Action] = {"o": "open", "y": "copy"}


class PickerRow(NamedTuple):
    """A session to choose."""

    session_id: str
    agent: str
    when: str
    title: str

    def __str__(self) -> str:
        return f"{self.agent:<8} {self.when}  {self.title}"


def pick() -> int | list[str]:
    """Let the person choose a session, and do what they want with it: return the exit code, or a command to run."""
    rows = _recent()
    if not rows:
        from smart_fork.agents import AGENTS

        whose = AGENTS.titles(AGENTS.readable(), "or")
        say(f"No session of {whose} yet. `smart-fork demo` shows how it works; --help lists all commands.")
        return 3
    say(FIRST)
    program = shutil.which("fzf")
    chosen = with_fzf(program, rows) if program else with_numbers(rows, input)
    return _do(*chosen) if chosen else 0


def _recent() -> list[PickerRow]:
    from smart_fork.finding.recent import list_recent
    from smart_fork.snippets import minute, printable

    found = list_recent("all", None, OFFERED).sessions
    if not found and (found := list_recent("all", None, OFFERED, everywhere=True).sessions):
        say("No sessions of this project; these are of all projects.")
    return [
        PickerRow(
            one.session_id,
            one.agent_type,
            minute(one.last_modified),
            " ".join(printable(one.title).split()),
        )
        for one in found
        if is_id(one.session_id)
    ]


def with_fzf(program: str, rows: Sequence[PickerRow]) -> tuple[Action, PickerRow] | None:
    """What the person chose in fzf; `None` where nothing."""
    from smart_fork.system.processes import Processes

    show = shlex.join([sys.executable, "-P", "-m", "smart_fork", "show"])
    argv = [program, "--delimiter=\t", "--with-nth=2..", "--no-multi", "--layout=reverse", "--prompt=fork> "]
    argv += [f"--preview={show} {{1}}", "--preview-window=down,60%,wrap", f"--expect={','.join(filter(None, _KEYS))}"]
    argv += [f"--header={FIRST}\nEnter forks, Ctrl-O opens, Ctrl-Y copies the command, Esc quits"]
    lines = "".join(f"{row.session_id}\t{row}\n" for row in rows)
    told = Processes.at_this_terminal(argv, lines.encode("utf-8", "replace")).splitlines()
    if len(told) < 2:
        return None
    session_id = told[1].partition("\t")[0]
    return next(((_KEYS.get(told[0], "fork"), row) for row in rows if row.session_id == session_id), None)


def with_numbers(rows: Sequence[PickerRow], ask: Callable[[str], str]) -> tuple[Action, PickerRow] | None:
    """What the person chose from a numbered list; `None` where nothing. Words that are no number narrow the list."""
    seen = list(rows)
    while True:
        seen = seen[: max(5, shutil.get_terminal_size().lines - _AROUND)]
        for number, row in enumerate(seen, start=1):
            out.row(plain(f"{number:>3}. {row}"))
        try:
            said = ask("Number forks, o3 opens, y3 copies the command, words filter, Enter quits: ").strip()
        except EOFError:
            return None
        if not said:
            return None
        action, number_said = _LETTERS.get(said[0].lower(), "fork"), said.lstrip("oOyY")
        if number_said.isascii() and number_said.isdigit():
            if 1 <= int(number_said) <= len(seen):
                return action, seen[int(number_said) - 1]
            say(f"There is no {number_said}.")
            continue
        words = said.casefold().split()
        narrowed = [row for row in rows if all(word in str(row).casefold() for word in words)]
        if not narrowed:
            say(f'No title has these words. {FIRST.partition(" find ")[0]} find "{plain(said)}"')
        seen = narrowed or list(rows)


def _do(action: Action, row: PickerRow) -> int | list[str]:
    if action == "copy":
        return _copy(row)
    if action == "open":
        return ["show", f"{row.agent}:{row.session_id}"]
    # In this terminal, but for tmux, where a window of its own is at hand.
    return ["fork", row.session_id, *([] if os.environ.get("TMUX") else ["--in", "here"])]


def _copy(row: PickerRow) -> int:
    """Into the clipboard: by macOS' program, else by the sequence that terminals understand, also far away ones."""
    command = f"smart-fork fork {row.session_id}"
    if program := shutil.which("pbcopy"):
        from smart_fork.system.processes import Processes

        Processes().run([program], timeout=5, input=command.encode())
    else:
        from base64 import b64encode

        sys.stdout.write(f"\x1b]52;c;{b64encode(command.encode()).decode()}\a")
    out.print(plain(command))
    return 0
