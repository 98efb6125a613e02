"""Lists of sessions for people: search results with the next command, and a list to choose a session from.

Titles may be hostile. fzf (a program to choose from a list) gets them only through a pipe. Of the line that it returns,
only the agent and the session id reach a command, and both are checked.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
import shutil
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

from indexer.settings import Setting
from smart_fork.agents import AGENTS
from smart_fork.agents.references import Reference
from smart_fork.cli.options import EverywhereOption
from smart_fork.cli.output import (
    Plain,
    complain,
    cut_to,
    library_shown,
    one_line,
    out,
    plain,
    say,
    say_passed_over,
    wrapped,
    write,
)
from smart_fork.cli.short_ids import is_id, short
from smart_fork.display_text import in_words, minute, printable, quoted, tokens_about
from smart_fork.errors import SmartForkError
from smart_fork.finding.answer import Found, Unsearched
from smart_fork.finding.fork_suitability import age_of, cache_in_words
from smart_fork.finding.query import unnamed
from smart_fork.finding.ranking import FIT_THRESHOLD, LIKELY_SCORE, percent
from smart_fork.finding.request import FindRequest
from smart_fork.finding.results import place_mark
from smart_fork.system.processes import Processes

if TYPE_CHECKING:
    from smart_fork.finding.answer import Answer, DeletedPrompt, RecentSession
    from smart_fork.finding.hit import Hit


#: The indentation of lines below a result, and the columns that such a line cannot use.
INDENT, _MARGIN = "    ", 7
#: The most results with a quotation; lines of a quotation; its characters; commits that a result names one by one.
_QUOTED, _LINES, _CHARACTERS, _COMMITS = 3, 2, 300, 3
#: A result with a lower score is only counted. Facts are left out until a headline has so many cells.
_SHOWN, _HEADLINE = 0.01, 20
#: How a session's work ended, in at most nine characters; empty if that is not known.
OUTCOMES = {"tests_passed": "tests ok", "unknown": ""}
#: The columns that are aligned to the left: agent and session id, and how the work ended.
_LEFT = (3, 5)


def print_found(answer: Answer, min_score: float | None = None) -> None:
    """Print an answer of ``find``: results, notices, and the next commands.

    `min_score` is the lowest score that the person asked for; a notice names it if nothing was found.
    """
    if isinstance(answer, Unsearched):
        steps = (f"  {number}. {step}" for number, step in enumerate(answer.next_steps, start=1))
        for line in filter(None, (answer.message, *steps, answer.team_error)):
            say(line)
        _print_fallback(answer)
        return
    print_hits(answer.results, known=_is_known(answer))
    _print_fallback(answer)
    print_deleted_prompts(answer.gone_prompts)
    for sentence in filter(None, _state(answer, min_score)):
        say(sentence)
    say_passed_over(answer.passed_over)
    for step in _next(answer):
        say(step)


def _is_known(answer: Found) -> bool:
    """Return True if a low score means a bad match: no logs or vectors are missing, and the language fits."""
    return not (answer.unread_notice or answer.early_notice or answer.language_notice)


def _next(answer: Found) -> Iterator[str]:
    """Yield the next commands to type: fork or read the best result, or what to do if no result fits."""
    least = FIT_THRESHOLD if answer.engine == "builtin" and answer.code is None else 0.0
    fitting = [hit for hit in answer.results if hit.score >= least]
    best = next((hit for hit in fitting if not hit.warning), None)
    best = best or next((hit for hit in fitting[:1] if not AGENTS[hit.agent_type].has("starter")), None)
    if best is not None:
        name, sure = short(best.session_id), bool(least and _is_known(answer))
        yield from (f"{percent(best.score)} sure that it is result {best.rank}.",) * sure
        fork = f'{best.suggested_fork(name)} "PROMPT"'
        yield _noted(f"Next: {fork}", f"continue in a copy: {tokens_about(best.price.tokens)} tokens")
        yield from (f"      {best.fork_note}",) * bool(best.fork_note)
        yield _noted(f"      {f'smart-fork show {name}':{len(fork)}}", "read it first")
    elif fitting:
        yield f"Next: smart-fork show {short(fitting[0].session_id)} reads the best one, which cannot be forked"
    elif (answer.unread_notice or answer.early_notice) and not (answer.code and not answer.results):
        yield from () if answer.background_notice else ("Next: smart-fork index run, then ask again",)
    elif answer.results and (answer.language_notice or unnamed(answer.query) or not answer.index.complete):
        yield f"Next: smart-fork show {short(answer.results[0].session_id)} reads the best so far"
    elif answer.results:
        yield 'Next: smart-fork new "PROMPT": start a new session, no past one fits'
        yield from ("      or search everywhere: --all-projects",) if answer.project_path is not None else ()


def _noted(command: str, note: str) -> str:
    """Return the shell `command` with `note` as a comment, if the line fits the terminal."""
    noted = f"{command}  # {note}"
    return noted if not out.width or len(noted) <= out.width else command.rstrip()


def print_hits(hits: Sequence[Hit], *, known: bool = True) -> None:
    """Print search results: a line each, quotations of the first ones, and why some cannot be forked.

    With `known` (low scores mean bad matches), print scores, and only count very unlikely results.
    """
    if not hits:
        return
    shown = [hit for hit in hits if not known or hit is hits[0] or hit.explain or hit.wrote or hit.score >= _SHOWN]
    table = [_columns(hit, known=known) for hit in shown]
    for number, (hit, line) in enumerate(zip(shown, _lines(table, shown, known=known), strict=True)):
        out.row(line)
        for below in _below(hit, table[number][2], quoting=number < _QUOTED):
            out.row(below)
        for explained in _explained(hit):
            out.print(plain(explained, "magenta"))
    if folded := len(hits) - len(shown):
        out.row(plain(f"{folded} more, unlikely: --explain prints {'it' if folded == 1 else 'them'}", "dim"))
    for warning in dict.fromkeys(hit.warning for hit in shown if hit.warning):
        ranks = ", ".join(str(hit.rank) for hit in shown if hit.warning == warning)
        for part in wrapped(f"Cannot be forked ({ranks}): {warning}", 0):
            out.print(plain(part, "yellow"))
    if sys.stdout.isatty() or sys.stderr.isatty():
        from smart_fork.cli.last_answer import remember

        remember(shown)


def _columns(hit: Hit, *, known: bool) -> tuple[str, ...]:
    """Return the columns of a result's line: rank, score, headline, facts. Narrow terminals omit the last facts."""
    return (
        str(hit.rank),
        percent(hit.score) if known or hit.wrote else "",
        one_line(printable(hit.headline or hit.session_id)),
        f"{hit.agent_type} {short(hit.session_id)}",
        _age(hit.last_activity),
        OUTCOMES.get(hit.outcome, hit.outcome),
        tokens_about(hit.price.tokens),
    )


def _lines(table: Sequence[tuple[str, ...]], hits: Sequence[Hit], *, known: bool) -> Iterator[Plain]:
    """Yield each result's line, made from its columns in `table` and cut to the terminal's width."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    facts = [number for number in range(3, len(widths)) if widths[number]]
    led = [one for one in (0, 1) if widths[one]]
    while (room := out.width - sum(widths[one] + 2 for one in (*led, *facts))) < _HEADLINE and facts[1:] and out.width:
        facts.pop()
    for columns, hit in zip(table, hits, strict=True):
        likely = known and hit.score >= FIT_THRESHOLD
        padded = [f"{columns[one]:{'<' if one in _LEFT else '>'}{widths[one]}}" for one in facts]
        rest = padded if out.width else [columns[one] for one in facts if columns[one]]
        yield (
            plain("".join(f"{columns[one]:>{widths[one]}}  " for one in led), "bold green" if likely else "dim")
            + plain(headline := cut_to(columns[2], room) if out.width else columns[2], "bold" if likely else "dim")
            + plain(_beside(headline, hit.edited_files, room), "dim")
            + plain("  " + "  ".join(rest), "cyan" if likely else "dim")
        )


def _beside(headline: str, files: Sequence[str], room: int) -> str:
    """Return the names of those `files` that fit on the line after `headline`, padded to `room` cells in all."""
    names = [PurePath(name).name for name in files]
    if not out.width:
        return f"  {', '.join(names)}" if names else ""
    from rich.cells import cell_len

    left = max(0, room - cell_len(headline))
    fitting = (f"  {', '.join(names[:number])}" for number in range(len(names), 0, -1))
    said = next((one for one in fitting if cell_len(one) <= left), "")
    return said + " " * (left - cell_len(said))


def _below(hit: Hit, headline: str, *, quoting: bool) -> Iterator[Plain]:
    """Yield the lines below a result: its notes, the code lines that it wrote, and a quotation."""
    marks = [
        *filter(None, [place_mark(hit.project_inferred_from, hit.began_in)]),
        *(hit.noted.marks if hit.noted else ()),
        *([f"shared by {hit.author}"] if hit.author else []),
        *([f"shared by {hit.origin.owner}"] if hit.origin else ["shared"] if hit.also_remote else []),
    ]
    for line in (" · ".join(marks), *(hit.noted.sentences if hit.noted else ())):
        if line:
            yield plain(f"{INDENT}{line}", "yellow")
    if wrote := hit.wrote:
        what = f"wrote {wrote.lines} of {wrote.of} lines, most of them in exchange {wrote.exchange}"
        where = f", commit {', '.join(one[:8] for one in wrote.commits[:_COMMITS])}" if wrote.commits else ""
        yield plain(f"{INDENT}{what}{where}", "magenta")
    said = quoted(wrote.asked if wrote else hit.snippet or "", _CHARACTERS)
    for line in wrapped(said, _MARGIN, _LINES) if quoting and said and said != headline else ():
        yield plain(f"{INDENT}│ {line}", "dim")


def _explained(hit: Hit) -> Iterator[str]:
    """Yield lines that explain a result's score and add facts; none without --explain or --verbose."""
    why, family, at_match = hit.explain, hit.lineage.family_size, hit.price.tokens_at_match
    if why:
        cached = cache_in_words(hit.price.cached_until)
        facts = [
            minute(hit.last_activity),
            *hit.became_of,
            f"{hit.price.tokens:,} tokens{f' ({cached})' if cached else ''}",
            *([f"{at_match:,} up to the match"] if hit.suggested_at is not None and at_match else []),
            *([f"about {hit.within_budget:,} within a budget of {budget}"] if (budget := hit.suggested_budget) else []),
            *([f"alone it {hit.resumed.sentence}"] if hit.resumed else []),
            *([f"{family} in its family"] if family > 1 else []),
            *([f"branch {hit.git_branch}"] if hit.git_branch else []),
            *([f"edited {', '.join(hit.edited_files)}"] if hit.edited_files else []),
        ]
        yield from (f"{INDENT}{line}" for line in wrapped(" · ".join(facts), _MARGIN))
        reranked = f"; the reranker makes it {why.reranked:.2f}" if why.reranked is not None else ""
        told = f"{_given(why.points)} for it, {why.against:.1f} against it: {why.score:.2f}{reranked}"
        yield from (f"{INDENT}{line}" for line in wrapped(told, _MARGIN))
        for one in why.phrasings:
            yield f"{INDENT}  {_given(one.points)} of it from: {quoted(one.text, 120)}"
        if cache := why.cache:
            used = f"{in_words(passed)} ago" if (passed := age_of(cache.last_request)) is not None else "unknown"
            yield f"{INDENT}Its log says that the cache lives {in_words(cache.seconds)}; last request: {used}"
    if why or logging.getLogger("smart_fork").isEnabledFor(logging.INFO):
        yield INDENT + "  ".join(filter(None, (hit.session_id, hit.passage_place)))


def _given(points: Mapping[str, float]) -> str:
    return " + ".join(f"{value:.1f} {part.replace('_', ' ')}" for part, value in points.items() if value) or "nothing"


def print_deleted_prompts(prompts: Sequence[DeletedPrompt]) -> None:
    """Print the prompts of deleted sessions, which cannot be forked."""
    if prompts:
        say("Prompts of deleted sessions, which cannot be shown or forked:")
    for one in prompts:
        more = f"  ({one.prompts} prompts)" if one.prompts > 1 else ""
        out.row(plain(f"    {minute(one.prompted_at)[:10]}  {one.agent_type}  {one.prompt}{more}", "dim"))


def _print_fallback(answer: Answer) -> None:
    sessions = answer.fallback_sessions or ()
    if sessions:
        say("The most recent sessions here:")
    for one in sessions:
        out.row(f"    {one.session_id}  {one.agent_type}  {one.headline or one.title}")


def _state(answer: Found, min_score: float | None = None) -> Iterator[str]:
    """Yield sentences that say why an answer may lack better sessions. Some are empty."""
    state, early = answer.index, answer.code or answer.unread_notice or answer.early_notice
    if (code := answer.code) and code.unknown:
        all_of_them = "this" if code.unknown == code.lines else f"{code.unknown} of {code.lines} lines"
        yield f"No session is known to have written {all_of_them}."
    if not answer.results and code is None:
        found = f"scores {min_score:g} or more" if min_score else "found"
        elsewhere = "" if answer.project_path is None else " --all-projects looks everywhere."
        yield f"Nothing {found} in {state.sessions} sessions.{elsewhere}"
    elif not early and (best := max(hit.score for hit in answer.results)) < LIKELY_SCORE and answer.engine == "builtin":
        none = "None of these is a sure match. " if best < FIT_THRESHOLD and _is_known(answer) else ""
        sure = unnamed(answer.query) or none
        yield f"{sure}Add other phrasings: --also TEXT, once for each." if not answer.also else sure.strip()
    yield f"Searched by {answer.search_mode} only: {answer.search_error}" if answer.search_error else ""
    yield answer.project_notice
    yield answer.order_notice if any(hit.explain for hit in answer.results) else ""
    yield answer.language_notice
    yield answer.team_error
    yield from answer.unread
    yield f"Not reranked: {answer.rerank_error}" if answer.rerank_error else ""
    if state.problem:
        yield f"{'Newer' if state.sessions else 'Your own'} sessions were not searched. {state.problem}"
    elif not state.complete and (answer.query or state.unread_logs):
        yield _indexing(answer)


def _indexing(answer: Found) -> str:
    """Return a sentence that says how much is indexed, and what to do until the rest is."""
    state = answer.index
    read = state.sessions / (state.sessions + (state.unread_logs or 0) or 1)
    done = f"{math.floor(100 * read * state.covered.all_passages)} %"
    if not answer.background_notice:
        return f"Indexed so far: {done}. `smart-fork index run` completes it."
    if not state.seconds_left:
        return f"Still indexing: {done}. Ask again in a few minutes."
    return f"Still indexing: {done}, about {in_words(state.seconds_left)} left. Ask again then."


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

        return _of_recent(list_recent("all", None, OFFERED, everywhere=everywhere).sessions)
    asked = FindRequest(words, agent_type="all", limit=ANSWERS, include_snippets=False)
    with library_shown(everywhere=everywhere) as known:
        answer = known.find(asked)
    return _of_hits(answer.results) if isinstance(answer, Found) else _of_recent(answer.fallback_sessions or ())


def _of_recent(sessions: Sequence[RecentSession]) -> list[PickerRow]:
    rows = [_row(one, (_age(one.last_modified), one.agent_type), one.forked_from) for one in sessions]
    return list(filter(None, rows))


def _of_hits(hits: Sequence[Hit]) -> list[PickerRow]:
    rows = list[PickerRow | None]()
    for hit in hits:
        outcome = OUTCOMES.get(hit.outcome, hit.outcome)
        facts = (percent(hit.score), _age(hit.last_activity), hit.agent_type, outcome)
        rows.append(_row(hit, facts, hit.lineage.parent, hit.match.turn_index))
    return list(filter(None, rows))


def _row(
    one: RecentSession | Hit, facts: tuple[str, ...], parent: str | None, at: int | None = None
) -> PickerRow | None:
    noted = (*one.noted.marks, *one.noted.sentences) if one.noted else ()
    marks = filter(None, (one.git_branch, f"fork of {short(parent)}" if parent else "", *noted))
    line = one_line(printable(f"{one.headline or one.title} ({', '.join(marks)})".removesuffix(" ()")))
    return PickerRow(Reference(one.agent_type, one.session_id), facts, line, at) if is_id(one.session_id) else None


def _age(moment: str) -> str:
    return in_words(passed) if (passed := age_of(moment)) is not None else ""


def shown(rows: Sequence[PickerRow]) -> Iterator[str]:
    """Yield a line for each row of the list to choose from: its facts in columns, then the headline."""
    columns = [column for column in zip(*(row.facts for row in rows), strict=False) if any(column)]
    for number, row in enumerate(rows):
        facts = (f"{one[number]:{'<' if one[number][:1].isalpha() else '>'}{max(map(len, one))}}" for one in columns)
        yield "  ".join((*facts, row.headline))


def _fzf_lines(rows: Sequence[PickerRow]) -> str:
    """Return the rows as lines for fzf. fzf hides the first two columns: the id, and where `show` opens."""
    parts = [(row, f"--context={CONTEXT}" if row.at is None else f"--at={row.at}") for row in rows]
    return "".join(f"{row.session}\t{at}\t{line}\n" for (row, at), line in zip(parts, shown(rows), strict=True))


def with_fzf(program: str, rows: Sequence[PickerRow], *, everywhere: bool = False) -> tuple[Action, Reference] | None:
    """Let the person choose an action and a session in fzf, at the path `program`; typing searches again."""
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
    """Let the person choose an action and a session from a numbered list. Words start a new `search`."""
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
    """Copy the command that forks the session to the clipboard, on macOS with a program. Return the exit code.

    Elsewhere a terminal escape sequence copies it, which also works over ssh.
    """
    command = f"smart-fork fork {session_id}"
    if program := shutil.which("pbcopy"):
        Processes().run([program], timeout=5, input=command.encode())
    else:
        sys.stdout.write(f"\x1b]52;c;{b64encode(command.encode()).decode()}\a")
    out.print(command)
    return 0
