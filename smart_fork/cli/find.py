"""``find``, ``list`` and ``show``."""

from __future__ import annotations

import select
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smart_fork.cli.agents import EVERYBODY, AlsoOption, WhoseOption
from smart_fork.cli.found import INDENT, print_found, print_gone
from smart_fork.cli.output import out, plain, printed_as_json, say, say_passed_over
from smart_fork.cli.progress import progress_bar
from smart_fork.errors import Usage
from smart_fork.terminal.words import short

if TYPE_CHECKING:
    from smart_fork.conversation import Conversation
    from smart_fork.finding.answer import Answer
    from smart_fork.finding.request import FindRequest

#: The team's server lists so many at once.
_MOST_SHARED = 100
#: Of an error on standard input no more is read.
MOST_ERROR = 1 << 20
#: So long the first line of a patch on standard input is waited for.
_PATCH_SECONDS = 5.0

ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", "-p", help="Directory of the project. All its worktrees count."),
]
TagOption = Annotated[str | None, typer.Option("--tag", help="Only sessions with this tag.")]
EverywhereOption = Annotated[bool, typer.Option("--all-projects", "-A", help="Search the sessions of all projects.")]
AutomatedOption = Annotated[bool, typer.Option("--include-automated", help="Include sessions that a program started.")]


def find(  # noqa: PLR0917 - typer's way
    intent: Annotated[
        str, typer.Argument(help="What you want to do next, in a sentence. Optional beside --line and the like.")
    ] = "",
    lines: Annotated[
        list[str] | None,
        typer.Option("--line", metavar="PATH:N", help="Sessions that wrote this line, or PATH:N-M. Repeatable."),
    ] = None,
    files: Annotated[
        list[str] | None, typer.Option("--file", metavar="PATH", help="Sessions that wrote this file. Repeatable.")
    ] = None,
    commit: Annotated[str | None, typer.Option("--commit", help="Sessions that wrote this commit.")] = None,
    pull: Annotated[
        int | None,
        typer.Option("--pr", min=1, help="Sessions that wrote this pull request. Uses gh, or its fetched ref."),
    ] = None,
    changes: Annotated[
        bool,
        typer.Option("--changes", help="Sessions that wrote the lines which uncommitted changes, or a patch, touch."),
    ] = False,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Exchanges of this session. self: the calling one."),
    ] = None,
    agent: WhoseOption = EVERYBODY,
    project: ProjectOption = None,
    everywhere: EverywhereOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Number of results, at most 50.")] = 5,
    min_score: Annotated[
        float | None, typer.Option("--min-score", help="Lowest score of a result, from 0 to 1.")
    ] = None,
    no_snippets: Annotated[bool, typer.Option("--no-snippets", help="Print no quotations.")] = False,
    automated: AutomatedOption = False,
    explain: Annotated[bool, typer.Option("--explain", help="Explain each score.")] = False,
    also: AlsoOption = None,
    tag: TagOption = None,
    team: Annotated[
        bool | None,
        typer.Option("--team/--no-team", help="Only sessions of the team, or only your own."),
    ] = None,
) -> None:
    """Find the past sessions that already know how, your own and those that your team shares.

    Words starting with a dash go after "--":  smart-fork find -- "-Werror breaks the build"
    """
    from smart_fork.finding.request import FindRequest
    from smart_fork.finding.team_search import team_search

    request = FindRequest(
        intent,
        agent_type=agent,
        limit=limit,
        min_score=min_score,
        include_snippets=not no_snippets,
        include_automated=automated,
        explain=explain,
        also=also or (),
        lines=lines,
        files=files,
        commit=commit,
        changes=_changes() if changes else None,
        pull=pull,
        session=session,
        tag=tag,
    )
    if session:
        _print_exchanges(request, _path(project))
        return
    if team:
        from smart_fork.cli.team.look import find_shared
        from smart_fork.cli.team.words import TeamPlace

        if agent != EVERYBODY:
            raise Usage("--agent and --team are mutually exclusive", "The team server searches all agents.")
        find_shared(replace(request, agent_type=None), TeamPlace(project=_path(project)))
        return
    from smart_fork.finding.background import library

    there = team_search(wanted=team)
    with progress_bar() as progress, library(_path(project), progress, everywhere=everywhere, elsewhere=there) as known:
        answer = known.find(request)
    if not printed_as_json(answer):
        print_found(answer, min_score)
    if status := _exit_code(answer):
        raise typer.Exit(status)


def _print_exchanges(request: FindRequest, project: str | None) -> None:
    from smart_fork.finding.background import library

    with progress_bar() as progress, library(project, progress) as known:
        found = known.within(request)
    if printed_as_json(found):
        return
    for one in found.exchanges:
        out.row(plain(f"exchange {one.exchange}", "bold cyan"), plain(f"message {one.message}"), plain(one.asked))
    if not found.exchanges:
        say("No exchange of this session answers that.")
    elif found.exchanges[0].message is not None:
        say(f"smart-fork show {short(found.session_id)} --at {found.exchanges[0].message} reads the best one")


def _changes() -> bool | str:
    """The patch on standard input; `True`, for the uncommitted changes, if there is none.

    A pipe that somebody forgot to close is not waited for.
    """
    if sys.stdin.isatty() or not select.select([sys.stdin], [], [], _PATCH_SECONDS)[0]:
        return True
    return sys.stdin.read() or True


def recall(
    intent: Annotated[str, typer.Argument(help="What you want to know, in a sentence.")],
    here: Annotated[bool, typer.Option("--here", help="Search this session: the one that runs the command.")] = False,
    project: ProjectOption = None,
) -> None:
    """Find the one session that probably knows, as at a first prompt, or what this session said before."""
    from smart_fork.finding.hints import LEAST
    from smart_fork.finding.library import SELF

    if here:
        find(intent, session=SELF, project=project)
    else:
        find(intent, limit=1, min_score=LEAST, project=project)


def why(
    where: Annotated[
        str, typer.Argument(metavar="PATH:N", help="A line of a file, PATH:N-M, or PATH for each commit.")
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="Number of changes.")] = 20,
) -> None:
    """Print each change of a line or a file, newest first, with the prompt that caused it."""
    from smart_fork.finding.background import library

    with progress_bar() as progress, library(progress=progress) as known:
        told = known.why(where, limit)
    if printed_as_json(told):
        return
    for one in told.changes:
        when = f"{one.date[:10]} {one.commit[:8]}" if one.commit else "not committed      "
        if one.session_id is None:
            out.row(plain(when), plain(f"no session is known: {one.subject}", "dim"))
            continue
        at = f" --at {one.ends_at_message}" if one.ends_at_message is not None else ""
        share = f" {one.lines} of {one.of} lines" if one.lines != one.of else ""
        who = f"{one.agent_type} {short(one.session_id)}{at}{share}"
        out.row(plain(when), plain(who, "bold cyan"), plain(one.asked or ""))
    if told.more:
        say(f"{told.more} more: --limit {min(500, len(told.changes) + told.more)}")
    if told.unread_notice:
        say(told.unread_notice)


def fix(
    agent: WhoseOption = EVERYBODY,
    project: ProjectOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Number of results, at most 50.")] = 5,
) -> None:
    """Print what ended an error when a session of this repository met it. The error is read from standard input."""
    from smart_fork.finding.background import library
    from smart_fork.finding.chances import percent
    from smart_fork.finding.request import FindRequest

    error = "" if sys.stdin.isatty() else sys.stdin.read(MOST_ERROR)
    with progress_bar() as progress, library(_path(project), progress) as known:
        told = known.fix(FindRequest("", agent_type=agent, limit=limit, error=error))
    if not printed_as_json(told):
        for one in told.fixes:
            at = f" --at {one.ends_at_message}" if one.ends_at_message is not None else ""
            out.row(plain(f"{percent(one.score):>6}", "bold green"), plain(one.title, "bold"))
            out.row(plain(f"{INDENT}{one.agent_type} {short(one.session_id)}{at} · {one.last_activity[:10]}", "cyan"))
            for sentence in one.noted.sentences if one.noted else ():
                out.row(plain(f"{INDENT}{sentence}", "yellow"))
            for action in one.ended_by:
                out.row(plain(f"{INDENT}ended by: {action}", "magenta"))
        if told.fixes:
            best = told.fixes[0]
            at = f" --at {best.ends_at_message}" if best.ends_at_message is not None else ""
            say(f"smart-fork fork {short(best.session_id)}{at} starts an agent that knows it")
        elif told.met:
            say(f"{told.met} session{'s' if told.met > 1 else ''} met this error, and none ended it.")
        else:
            say("No session met this error." if told.lines else "No line of this is one error's own.")
        if told.unread_notice:
            say(told.unread_notice)
    if not told.fixes:
        raise typer.Exit(3)


def list_sessions(  # noqa: PLR0917 - typer's way
    agent: WhoseOption = EVERYBODY,
    project: ProjectOption = None,
    everywhere: EverywhereOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="Number of sessions.")] = 20,
    automated: AutomatedOption = False,
    tag: TagOption = None,
    archived: Annotated[bool, typer.Option("--archived", help="Only archived sessions.")] = False,
    team: Annotated[bool, typer.Option("--team", help="Only sessions that the team shares.")] = False,
) -> None:
    """Recent sessions, straight from the logs: no index needed. Pinned sessions come first."""
    if team:
        from smart_fork.cli.team.look import list_sessions as list_shared
        from smart_fork.cli.team.words import TeamPlace

        whose = None if agent == EVERYBODY else str(agent)
        if limit > _MOST_SHARED:
            raise Usage(
                f"--limit is at most {_MOST_SHARED} with --team, not {limit}",
                "`smart-fork team list --page` lists more.",
            )
        list_shared(agent=whose, limit=limit, place=TeamPlace(project=_path(project)))
        return
    from smart_fork.finding.recent import list_recent
    from smart_fork.finding.results import inferred

    found = list_recent(
        agent, _path(project), limit, everywhere=everywhere, automated=automated, tag=tag or "", archived=archived
    )
    if printed_as_json(found):
        return
    for why in filter(None, (*found.unread, found.project_notice)):
        say(why)
    say_passed_over(found.passed_over)
    if not found.sessions:
        say("No sessions here." + ("" if everywhere else " --all-projects looks everywhere."))
    if found.hidden_automated and len(found.sessions) < limit:
        say(f"Automated sessions, hidden: {found.hidden_automated}. --include-automated shows them.")
    wide = max((len(one.agent_type) for one in found.sessions), default=0)
    for one in found.sessions:
        out.row(
            plain(f"{short(one.session_id):<13}", "bold cyan"),
            plain(f"{one.agent_type:<{wide}}"),
            plain(one.last_modified[:16].replace("T", " ")),
            plain(one.title),
            *([plain(one.project_path, "dim")] if everywhere else []),
            *([plain(f"({mark})", "dim")] if (mark := inferred(one.project_inferred_from)) else []),
            *([plain(f"(shared by {one.author})", "dim")] if one.author else []),
            *([plain(f"({'; '.join((*one.noted.marks, *one.noted.sentences))})", "dim")] if one.noted else []),
        )
    print_gone(found.gone_prompts)


def _path(project: Path | None) -> str | None:
    return str(project) if project else None


def show(
    session: Annotated[str, typer.Argument(help="Session id, 8 characters or more.")],
    at: Annotated[int | None, typer.Option("--at", help="Show the messages around this number.")] = None,
    context: Annotated[int, typer.Option("--context", "-C", min=0, help="Messages before and after --at.")] = 3,
) -> None:
    """The conversation as Markdown, its messages numbered as `fork --at` takes them."""
    from smart_fork.conversation import Exported
    from smart_fork.public import read

    one = read(session, at=at, context=context)
    if not isinstance(one, Exported):
        _print_conversation(one)
    elif not printed_as_json(one):
        for sentence in one.noted.sentences if one.noted else ():
            say(sentence)
        out.print(plain(one.markdown))


def _print_conversation(conversation: Conversation) -> None:
    if printed_as_json(conversation):
        return
    from smart_fork.sessions import as_markdown

    out.print(plain(as_markdown(conversation)), end="")
    for sentence in (conversation.notice if conversation.owner else "", conversation.left_out):
        if sentence:
            say(sentence)


def _exit_code(answer: Answer) -> int:
    """3 only where the project has no session at all, 1 where nothing could be searched."""
    from smart_fork.finding.answer import Unsearched

    if isinstance(answer, Unsearched):
        return 1 if answer.fallback_sessions else 3
    if answer.code:
        return 0 if answer.results else 3
    there = answer.results or answer.fallback_sessions or answer.index.sessions or answer.index.unread_logs
    return 0 if there else 3
