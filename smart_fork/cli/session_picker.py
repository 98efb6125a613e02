"""A list from which a person chooses a session and an action, in fzf (a program for this) or by number.

Titles may be hostile. fzf gets them only through a pipe. Of the line that it returns, only the agent and the session id
reach a command, and both are checked.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from indexer.environment import Setting
from smart_fork.agents import AGENTS
from smart_fork.agents.references import Reference
from smart_fork.cli.options import EverywhereOption
from smart_fork.cli.output import complain, library_shown, one_line, out, say, write
from smart_fork.cli.result_list import OUTCOMES, age
from smart_fork.cli.session_ids import is_id, short
from smart_fork.display_text import printable
from smart_fork.errors import SmartForkError
from smart_fork.finding.answer import Found
from smart_fork.finding.ranking import percent
from smart_fork.finding.request import FindRequest
from smart_fork.system.processes import Processes

if TYPE_CHECKING:
    from smart_fork.finding.answer import RecentSession
    from smart_fork.finding.hit import Hit


Action = Literal["fork", "open", "copy"]
OFFERED, ANSWERS = 100, 30
#: The pause in typing before a search starts. fzf ends the previous search, and with it this pause.
PAUSE = 0.15
#: Messages that fzf's preview shows before and after the one that matches.
CONTEXT = 3
#: Lines of the terminal that the numbered list leaves free for the text above and below it.
_AROUND = 5
_KEYS: dict[str, Action] = {"": "fork", "ctrl-o": "open", "ctrl-y": "copy"}
_HEADER = "Type what to do next. Enter: fork  Ctrl-O: show  Ctrl-Y: copy  Esc: quit"
_LETTERS: dict[str, Action] = {"o": "open", "y": "copy"}


class PickerRow(NamedTuple):
    """A session in the list to choose from. `at` is the number of its message that matches the search, if any."""

    session: Reference
    facts: tuple[str, ...]
    headline: str
    at: int | None = None


def pick() -> int | list[str]:
    """Let the person choose a session and an action. Return the command to run next, or an exit code."""
    everywhere = not (rows := rows_for(""))
    if everywhere and (rows := rows_for("", everywhere=True)):
        say("No sessions of this project; these are of all projects.")
    if not rows:
        whose = AGENTS.titles(AGENTS.readable(), "or")
        say(f"No session of {whose} yet. `smart-fork demo` shows how it works; --help lists all commands.")
        return 3
    if program := shutil.which("fzf"):
        chosen = with_fzf(program, rows, everywhere=everywhere)
    else:
        chosen = with_numbers(rows, input, partial(rows_for, everywhere=everywhere))
    return _do(*chosen) if chosen else 0


def choices(*, everywhere: EverywhereOption = False) -> None:
    """Print lines for fzf: the sessions that answer the words on standard input, or the newest ones."""
    write(_fzf_lines(rows_for(sys.stdin.read(), everywhere=everywhere)))


def rows_for(words: str, *, everywhere: bool = False) -> list[PickerRow]:
    """Return the rows of sessions that match `words`, best first; without words, of the newest sessions."""
    if not words.strip():
        from smart_fork.finding.recent import list_recent

        rows = _of_recent(list_recent("all", None, OFFERED, everywhere=everywhere).sessions)
    else:
        asked = FindRequest(words, agent_type="all", limit=ANSWERS, include_snippets=False)
        with library_shown(everywhere=everywhere) as known:
            answer = known.find(asked)
        rows = _of_hits(answer.results) if isinstance(answer, Found) else _of_recent(answer.fallback_sessions or ())
    return [row for row in rows if is_id(row.session.name)]


def _of_recent(sessions: Sequence[RecentSession]) -> Iterator[PickerRow]:
    return (_row(one, (age(one.last_modified), one.agent_type), one.forked_from) for one in sessions)


def _of_hits(hits: Sequence[Hit]) -> Iterator[PickerRow]:
    for hit in hits:
        facts = (percent(hit.score), age(hit.last_activity), hit.agent_type, OUTCOMES.get(hit.outcome, hit.outcome))
        yield _row(hit, facts, hit.lineage.parent, hit.match.turn_index)


def _row(one: RecentSession | Hit, facts: tuple[str, ...], parent: str | None, at: int | None = None) -> PickerRow:
    noted = (*one.noted.marks, *one.noted.sentences) if one.noted else ()
    marks = filter(None, (one.git_branch, f"fork of {short(parent)}" if parent else "", *noted))
    line = one_line(printable(f"{one.headline or one.title} ({', '.join(marks)})".removesuffix(" ()")))
    return PickerRow(Reference(one.agent_type, one.session_id), facts, line, at)


def shown(rows: Sequence[PickerRow]) -> Iterator[str]:
    """Yield a line for each row of the list: its facts in columns, then the headline."""
    columns = [column for column in zip(*(row.facts for row in rows), strict=False) if any(column)]
    for number, row in enumerate(rows):
        facts = (f"{one[number]:{'<' if one[number][:1].isalpha() else '>'}{max(map(len, one))}}" for one in columns)
        yield "  ".join((*facts, row.headline))


def _fzf_lines(rows: Sequence[PickerRow]) -> str:
    """Return the rows as lines for fzf, which hides their first two columns: the id, and an option for the preview."""
    parts = [(row, f"--context={CONTEXT}" if row.at is None else f"--at={row.at}") for row in rows]
    return "".join(f"{row.session}\t{at}\t{line}\n" for (row, at), line in zip(parts, shown(rows), strict=True))


def with_fzf(program: str, rows: Sequence[PickerRow], *, everywhere: bool = False) -> tuple[Action, Reference] | None:
    """Return the action and session that a person chooses in fzf, at the path `program`, or `None`. Typing searches."""
    from smart_fork.cli.preload.client import start_preloader

    if sys.platform == "linux" and not Setting.PRELOAD.is_off():
        start_preloader()  # it is there when the first words are typed
    ours = shlex.join(Processes.python("smart_fork"))
    search = f"printf %s {{q}} | {ours} choices{' --all-projects' if everywhere else ''}"
    argv = [program, "--disabled", "--no-multi", "--layout=reverse", "--prompt=fork> ", f"--header={_HEADER}"]
    argv += ["--delimiter=\t", "--with-nth=3..", f"--expect={','.join(filter(None, _KEYS))}"]
    argv += [f"--bind=change:first+reload:sleep {PAUSE}; {search}"]
    argv += [f"--preview={ours} show {{2}} -- {{1}}", "--preview-window=down,60%,wrap"]
    told = Processes.at_this_terminal(argv, _fzf_lines(rows).encode("utf-8", "replace")).splitlines()
    if len(told) < 2:
        return None
    session = Reference.parsed(told[1].partition("\t")[0])
    return (_KEYS.get(told[0], "fork"), session) if session.agent and is_id(session.name) else None


def with_numbers(
    rows: Sequence[PickerRow], ask: Callable[[str], str], search: Callable[[str], Sequence[PickerRow]]
) -> tuple[Action, Reference] | None:
    """Return the action and session that a person chooses from a numbered list, or `None`. Words start a `search`."""
    seen = rows
    while True:
        seen = seen[: max(5, shutil.get_terminal_size().lines - _AROUND)]
        for number, line in enumerate(shown(seen), start=1):
            out.row(f"{number:>3}. {line}")
        try:
            said = ask("3: fork  o3: show  y3: copy  words: search  Enter: quit > ").strip()
        except EOFError:
            return None
        if not said:
            return None
        action, number_said = _LETTERS.get(said[0].lower(), "fork"), said.lstrip("oOyY")
        if number_said.isascii() and number_said.isdigit():
            if 1 <= int(number_said) <= len(seen):
                return action, seen[int(number_said) - 1].session
            say(f"There is no {number_said}.")
            continue
        try:
            seen = search(said)
        except SmartForkError as error:
            complain(error)
            continue
        if not seen:
            say("Nothing found.")
            seen = rows


def _do(action: Action, session: Reference) -> int | list[str]:
    if action == "copy":
        return _copy(session.name)
    if action == "open":
        return ["show", str(session)]
    # In this terminal, but for tmux, where a window of its own is at hand.
    return ["fork", session.name, *([] if os.environ.get("TMUX") else ["--in", "here"])]


def _copy(session_id: str) -> int:
    """Copy the command that forks the session to the clipboard. Return the exit code.

    On macOS a program copies it, elsewhere a terminal escape sequence, which also works over ssh.
    """
    command = f"smart-fork fork {session_id}"
    if program := shutil.which("pbcopy"):
        Processes().run([program], timeout=5, input=command.encode())
    else:
        sys.stdout.write(f"\x1b]52;c;{b64encode(command.encode()).decode()}\a")
    out.print(command)
    return 0
