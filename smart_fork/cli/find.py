"""The commands ``find``, ``recall``, ``why``, ``fix``, ``list``, ``show`` and ``export``."""

from __future__ import annotations

import os
import select
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smart_fork.agents.request_fields import takes
from smart_fork.cli.command_table import command_module
from smart_fork.cli.options import EVERYBODY, EverywhereOption, ProjectOption, SessionArgument, WhoseOption
from smart_fork.cli.output import library_shown, out, plain, printed_as_json, say, say_passed_over, write
from smart_fork.cli.result_list import INDENT, print_deleted_prompts, print_found
from smart_fork.cli.short_ids import short
from smart_fork.display_text import minute
from smart_fork.errors import Usage
from smart_fork.finding.answer import Unsearched
from smart_fork.finding.ranking import percent
from smart_fork.finding.request import FindRequest, RecentRequest
from smart_fork.finding.results import place_mark
from smart_fork.finding.team_sessions import conversation_of, team_search

if TYPE_CHECKING:
    from smart_fork.finding.answer import Answer


#: The most sessions that the team's server lists in one page.
_MAX_SHARED = 100
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
    asked = replace(asked, agent_type=agent, changes=_changes() if asked.changes else None)
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


def _changes() -> bool | str:
    """Return the patch on stdin, or `True` to search for the uncommitted changes.

    If stdin is an open pipe, wait only a few seconds for input.
    """
    if sys.stdin.isatty() or not select.select([sys.stdin], [], [], _PATCH_SECONDS)[0]:
        return True
    return sys.stdin.read() or True


def recall(
    intent: Annotated[list[str], typer.Argument(help="What you want to know, in a sentence.")],
    here: Annotated[bool, "Search this session: the one that runs the command."] = False,
    project: ProjectOption = None,
) -> None:
    """Find the one session that probably knows, as at a first prompt, or what this session said before."""
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


@takes(order="agent project everywhere limit include_automated tag archived")
def list_sessions(
    *,
    agent: WhoseOption = EVERYBODY,
    project: ProjectOption = None,
    everywhere: EverywhereOption = False,
    asked: RecentRequest,
    team: Annotated[bool, "Only sessions that the team shares."] = False,
) -> None:
    """List recent sessions, straight from the logs: no index is needed. Pinned sessions come first."""
    if team:
        whose = None if agent == EVERYBODY else str(agent)
        if asked.limit > _MAX_SHARED:
            raise Usage(
                f"--limit is at most {_MAX_SHARED} with --team, not {asked.limit}",
                "`smart-fork team list --page` lists more.",
            )
        team_commands = command_module("team")
        place = team_commands.TeamPlace(project=project)
        team_commands.reading.list_sessions(agent=whose, limit=asked.limit, place=place)
        return
    from smart_fork.finding.recent import list_recent

    found = list_recent(
        agent, project, asked.limit, everywhere=everywhere, automated=asked.include_automated, tag=asked.tag or "",
        archived=asked.archived,
    )  # fmt: skip
    if printed_as_json(found):
        return
    for why in filter(None, (*found.unread, found.project_notice)):
        say(why)
    say_passed_over(found.passed_over)
    if not found.sessions:
        say("No sessions here." + ("" if everywhere else " --all-projects looks everywhere."))
    wide = max((len(one.agent_type) for one in found.sessions), default=0)
    for one in found.sessions:
        out.row(
            plain(f"{short(one.session_id):<13}", "bold cyan"),
            f"{one.agent_type:<{wide}}",
            minute(one.last_modified),
            one.headline or one.title,
            *([plain(one.project_path, "dim")] if everywhere else []),
            *([plain(f"({mark})", "dim")] if (mark := place_mark(one.project_inferred_from, one.began_in)) else []),
            *([plain(f"(shared by {one.author})", "dim")] if one.author else []),
            *([plain(f"(fork of {short(one.forked_from)})", "dim")] if one.forked_from else []),
            *([plain(f"({'; '.join((*one.noted.marks, *one.noted.sentences))})", "dim")] if one.noted else []),
        )
    print_deleted_prompts(found.gone_prompts)
    if found.hidden_automated and len(found.sessions) < asked.limit:
        say(f"Automated sessions, hidden: {found.hidden_automated}. --include-automated shows them.")


def show(
    session: SessionArgument,
    at: Annotated[int | None, "Show the messages around this number."] = None,
    context: Annotated[int, typer.Option("--context", "-C", min=0, help="Messages before and after --at.")] = 3,
    no_pager: Annotated[bool, "Print all of it, without PAGER."] = False,
) -> None:
    """Print a session's conversation as Markdown, rendered on a terminal. `fork --at` takes the numbers of the
    messages.
    """
    from smart_fork.finding.conversation import Exported, ReadRange

    one = conversation_of(session, ReadRange(at, context or 0, context), Path.cwd())
    if printed_as_json(one):
        return
    if isinstance(one, Exported):
        texts, notes = [(str(one.markdown), "")], one.noted.sentences if one.noted else []
    else:
        texts, notes = list(one.as_markdown()), [one.notice if one.owner else "", one.left_out]
    if sys.stdout.isatty() or "FZF_PREVIEW_COLUMNS" in os.environ:
        from smart_fork.cli import pager

        pager.show(texts, pages=sys.stdout.isatty() and not no_pager)
    else:
        out.print("\n".join(next(zip(*texts, strict=True))))
    for sentence in filter(None, notes):
        say(sentence)


def _exit_code(answer: Answer) -> int:
    """Return 3 if the project has no session, 1 if the search failed, else 0."""
    if isinstance(answer, Unsearched):
        return 1 if answer.fallback_sessions else 3
    if answer.code:
        return 0 if answer.results else 3
    there = answer.results or answer.fallback_sessions or answer.index.sessions or answer.index.unread_logs
    return 0 if there else 3


def export(
    session: SessionArgument,
    file: Annotated[Path | None, typer.Argument(help="File to write. Without it, print to stdout.")] = None,
    html: Annotated[bool, "Write one HTML page without scripts."] = False,
    markdown: Annotated[bool, "Write Markdown."] = False,
    force: Annotated[bool, "Replace an existing file."] = False,
) -> None:
    """Write a session to one file: prompts, answers, commands, and edits as diffs. Secrets are masked."""
    from smart_fork.page.export import exported

    if html == markdown:
        raise Usage("Choose a format: --html or --markdown")
    where = None if file == Path("-") else file
    made = exported(session, "html" if html else "markdown", where, force=force)
    if printed_as_json(made):
        return
    if made.left_out:
        say(made.left_out)
    if made.file is not None:
        say(f"{made.title}: {made.characters:,} characters in {made.file}. Read it before you send it.")
    else:
        write(made.text)
