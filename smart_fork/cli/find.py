"""The commands ``find``, ``recall``, ``why`` and ``fix``."""

from __future__ import annotations

import select
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from smart_fork.agents.request_fields import takes
from smart_fork.cli.command_table import command_module
from smart_fork.cli.options import EVERYBODY, EverywhereOption, ProjectOption, WhoseOption
from smart_fork.cli.output import library_shown, out, plain, printed_as_json, say
from smart_fork.cli.result_list import INDENT, print_found
from smart_fork.cli.session_ids import short
from smart_fork.display_text import minute
from smart_fork.errors import Usage
from smart_fork.finding.answer import Unsearched
from smart_fork.finding.ranking import percent
from smart_fork.finding.request import FindRequest
from smart_fork.finding.team_sessions import team_search

if TYPE_CHECKING:
    from smart_fork.finding.answer import Answer


#: The most characters that are read of an error on stdin.
_MAX_ERROR_CHARACTERS = 1 << 20
#: How long to wait for the first line of a patch on standard input.
_PATCH_SECONDS = 5.0


@takes(
    order="intent lines files commit pull changes session agent project everywhere limit min_score no_snippets "
    "include_automated explain also tag"
)
def find(
    *,
    asked: FindRequest,
    agent: WhoseOption = EVERYBODY,
    project: ProjectOption = None,
    everywhere: EverywhereOption = False,
    team: Annotated[
        bool | None,
        typer.Option("--team/--no-team", help="Only sessions of the team, or only your own."),
    ] = None,
) -> None:
    """Find the past sessions that already know how: your own ones, and those that your team shares.

    Words starting with a dash go after "--":  smart-fork find -- "-Werror breaks the build"
    """
    asked = replace(asked, agent_type=agent, changes=_patch() if asked.changes else None)
    if asked.session:
        _print_exchanges(asked, project)
        return
    if team:
        if agent != EVERYBODY:
            raise Usage("--agent and --team are mutually exclusive", "The team server searches all agents.")
        team_commands = command_module("team")
        team_commands.reading.find_shared(replace(asked, agent_type=None), team_commands.TeamPlace(project=project))
        return
    with library_shown(project, everywhere=everywhere, elsewhere=team_search(wanted=team)) as known:
        answer = known.find(asked)
    if not printed_as_json(answer):
        print_found(answer, asked.min_score)
    if status := _exit_code(answer):
        raise typer.Exit(status)


def _print_exchanges(request: FindRequest, project: str | None) -> None:
    with library_shown(project) as known:
        found = known.within(request)
    if printed_as_json(found):
        return
    for one in found.exchanges:
        out.row(plain(f"exchange {one.exchange}", "bold cyan"), f"message {one.message}", one.asked)
    if not found.exchanges:
        say("No exchange of this session answers that.")
    elif found.exchanges[0].message is not None:
        say(f"smart-fork show {short(found.session_id)} --at {found.exchanges[0].message} reads the best one")


def _patch() -> bool | str:
    """Return the patch on stdin; if none comes within seconds, `True`, which means the uncommitted changes."""
    if sys.stdin.isatty() or not select.select([sys.stdin], [], [], _PATCH_SECONDS)[0]:
        return True
    return sys.stdin.read() or True


def recall(
    intent: Annotated[list[str], typer.Argument(help="What you want to know, in a sentence.")],
    here: Annotated[bool, "Search this session: the one that runs the command."] = False,
    project: ProjectOption = None,
) -> None:
    """Find the one session that probably knows; with `here`, the exchanges of the calling session that know."""
    find(asked=FindRequest.recall(" ".join(intent), here=here), project=project)


def why(
    where: Annotated[
        str, typer.Argument(metavar="PATH:N", help="A line of a file, PATH:N-M, or PATH for each commit.")
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="Number of changes.")] = 20,
) -> None:
    """Print each change of a line or a file, newest first, with the prompt that caused it."""
    with library_shown() as known:
        told = known.why(where, limit)
    if printed_as_json(told):
        return
    for one in told.changes:
        when = f"{minute(one.date)[:10]} {one.commit[:8]}" if one.commit else "not committed      "
        if one.session_id is None:
            out.row(when, plain(f"no session is known: {one.subject}", "dim"))
            continue
        share = f" {one.lines} of {one.of} lines" if one.lines != one.of else ""
        who = f"{one.agent_type} {short(one.session_id)}{_at(one.ends_at_message)}{share}"
        out.row(when, plain(who, "bold cyan"), one.asked or "")
    if told.more:
        say(f"{told.more} more: --limit {min(500, len(told.changes) + told.more)}")
    if told.unread_notice:
        say(told.unread_notice)


def _at(message: int | None) -> str:
    return f" --at {message}" if message is not None else ""


@takes(only=("limit",), order="agent project limit")
def fix(*, asked: FindRequest, agent: WhoseOption = EVERYBODY, project: ProjectOption = None) -> None:
    """Print what ended an error in earlier sessions of this repository. The error is read from standard input."""
    error = "" if sys.stdin.isatty() else sys.stdin.read(_MAX_ERROR_CHARACTERS)
    with library_shown(project) as known:
        told = known.fix(replace(asked, agent_type=agent, error=error))
    if not printed_as_json(told):
        for one in told.fixes:
            out.row(plain(f"{percent(one.score):>6}", "bold green"), plain(one.title, "bold"))
            who, day = f"{one.agent_type} {short(one.session_id)}", minute(one.last_activity)[:10]
            out.row(plain(f"{INDENT}{who}{_at(one.ends_at_message)} · {day}", "cyan"))
            for sentence in one.noted.sentences if one.noted else ():
                out.row(plain(f"{INDENT}{sentence}", "yellow"))
            for action in one.ended_by:
                out.row(plain(f"{INDENT}ended by: {action}", "magenta"))
        if told.fixes:
            best = told.fixes[0]
            say(f"smart-fork fork {short(best.session_id)}{_at(best.ends_at_message)} starts an agent that knows it")
        elif told.met:
            say(f"{told.met} session{'s' if told.met > 1 else ''} met this error, and none ended it.")
        else:
            say("No session met this error." if told.lines else "No line of this is one error's own.")
        if told.unread_notice:
            say(told.unread_notice)
    if not told.fixes:
        raise typer.Exit(3)


def _exit_code(answer: Answer) -> int:
    """Return ``find``'s exit code: 3 if the project or given code has no session, 1 if the search failed, else 0."""
    if isinstance(answer, Unsearched):
        return 1 if answer.fallback_sessions else 3
    if answer.code:
        return 0 if answer.results else 3
    there = answer.results or answer.fallback_sessions or answer.index.sessions or answer.index.unread_logs
    return 0 if there else 3
