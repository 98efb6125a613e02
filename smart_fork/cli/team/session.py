"""``push``, ``pull``, ``branch`` and ``fork``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexer.project import resolve
from smart_fork.agents import AGENTS
from smart_fork.cli.output import out, plain, print_json, say
from smart_fork.cli.search import JsonOption
from smart_fork.cli.team.group import app
from smart_fork.cli.team.words import (
    AliasOption,
    AtOption,
    CurrentArgument,
    ForceOption,
    IntoOption,
    KeyOption,
    PlatformOption,
    PrivateOption,
    PublicOption,
    ResumeOption,
    ServerOption,
    SessionArgument,
    SummaryOption,
    TagsOption,
    TitleOption,
    YesOption,
    agreed,
    number_of,
    print_shared,
    tags_of,
    text_of,
    visibility_of,
)
from smart_fork.sharing.limits import SUMMARY, TEXT

if TYPE_CHECKING:
    from smart_fork.agents.agent import Agent
    from smart_fork.team.project import Project
    from smart_fork.team.push_plan import Plan
    from smart_fork.team.shared import Shared

NoTrackOption = Annotated[bool, typer.Option("--no-track", help="Do not write down that it is here.")]
LocalOption = Annotated[
    bool, typer.Option("--local", help="On this machine alone; the server has it with its first push.")
]
NoPullOption = Annotated[bool, typer.Option("--no-pull", help="On the server alone.")]


def takes_platforms(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in place of its parameter `platforms`, a flag for each agent whose sessions are shared."""
    agents = [agent for agent in AGENTS if agent.has("forms")]
    shown: list[Parameter] = []
    for one in inspect.signature(command, eval_str=True).parameters.values():
        shown += map(_flag, agents) if one.name == "platforms" else [one]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        platforms = [agent.name for agent in agents if given.pop(f"of_{agent.name}")]
        command(**given, platforms=platforms)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown}
    return run


def _flag(agent: Agent) -> Parameter:
    option = typer.Option(f"--{agent.name}", help=f"The newest session of {agent.title} in this project.")
    return Parameter(f"of_{agent.name}", Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])


@app.command("push")
@takes_platforms
def push(
    *,
    session: Annotated[
        str | None,
        typer.Argument(metavar="[ID|PATH]", help="A session of this machine, its log, or an alias; the current one."),
    ] = None,
    platforms: list[str],
    public: PublicOption = False,
    private: PrivateOption = False,
    title: TitleOption = None,
    tags: TagsOption = None,
    summary: SummaryOption = None,
    images: Annotated[bool, typer.Option("--images", help="Images too: nobody can look for secrets in them.")] = False,
    yes: YesOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")] = False,
    force: ForceOption = False,
    server: ServerOption = None,
    project: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Share a session, or what it has said since: masked, shown and asked for first. Private unless --public."""
    from smart_fork.team.changes import opened
    from smart_fork.team.push import send
    from smart_fork.team.push_plan import PushAsked, plan

    asked = PushAsked(
        reference=session,
        platforms=tuple(platforms),
        visibility=visibility_of(public=public, private=private),
        title=text_of(title, "--title", TEXT),
        tags=tags_of(tags),
        summary=text_of(summary, "--summary", SUMMARY),
        images=images,
        force=force,
    )
    with opened(server, project) as where:
        made = plan(where, asked)
        if dry_run:
            _print_plan(where, made, as_json=as_json)
            return
        if not _agreed(where, made, yes=yes):
            say("Nothing was sent.")
            raise typer.Abort
        done = send(where, made)
    print_shared(done, as_json=as_json)


@app.command("pull")
def pull(  # noqa: PLR0917 - typer's way
    session: SessionArgument,
    into: IntoOption = None,
    platform: PlatformOption = None,
    resume: ResumeOption = False,
    alias: AliasOption = None,
    no_track: NoTrackOption = False,
    force: ForceOption = False,
    yes: YesOption = False,
    server: ServerOption = None,
    project: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take over one of your own shared sessions, or what is new of it."""
    from smart_fork.team.pull import TakenAs
    from smart_fork.team.pull import pull as take_over

    taken = TakenAs(into, platform, alias, not no_track, force)
    with _opened(server, project, into, yes=yes) as where:
        done = take_over(where, session, taken)
    _finish(done, resume=resume, as_json=as_json)


@app.command("branch")
def branch(  # noqa: PLR0917 - typer's way
    session: CurrentArgument = None,
    at: AtOption = None,
    title: TitleOption = None,
    tags: TagsOption = None,
    summary: SummaryOption = None,
    private: PrivateOption = False,
    public: PublicOption = False,
    alias: AliasOption = None,
    local: LocalOption = False,
    no_pull: NoPullOption = False,
    platform: PlatformOption = None,
    resume: ResumeOption = False,
    into: IntoOption = None,
    yes: YesOption = False,
    server: ServerOption = None,
    project: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a session with the first messages of one of your own."""
    from smart_fork.team.branch import BranchAsked
    from smart_fork.team.branch import branch as make
    from smart_fork.team.pull import TakenAs

    seen = visibility_of(public=public, private=private)
    called, about = text_of(title, "--title", TEXT), text_of(summary, "--summary", SUMMARY)
    asked = BranchAsked(number_of(at), called, tags_of(tags), about, seen, local, not no_pull)
    with _opened(server, project, into, yes=yes) as where:
        done = make(where, session, asked, TakenAs(into, platform, alias))
    _finish(done, resume=resume, as_json=as_json)


@app.command("fork")
def fork(  # noqa: PLR0917 - typer's way
    session: SessionArgument,
    at: AtOption = None,
    title: TitleOption = None,
    tags: TagsOption = None,
    summary: SummaryOption = None,
    private: PrivateOption = False,
    public: PublicOption = False,
    alias: AliasOption = None,
    local: LocalOption = False,
    no_pull: NoPullOption = False,
    platform: PlatformOption = None,
    resume: ResumeOption = False,
    into: IntoOption = None,
    force: ForceOption = False,
    yes: YesOption = False,
    server: ServerOption = None,
    project: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a session of your own with the first messages of a teammate's public one."""
    from smart_fork.team.branch import BranchAsked
    from smart_fork.team.branch import fork as make
    from smart_fork.team.pull import TakenAs

    seen = visibility_of(public=public, private=private)
    called, about = text_of(title, "--title", TEXT), text_of(summary, "--summary", SUMMARY)
    asked = BranchAsked(number_of(at), called, tags_of(tags), about, seen, local, not no_pull)
    with _opened(server, project, into, yes=yes) as where:
        done = make(where, session, asked, TakenAs(into, platform, alias, force=force))
    _finish(done, resume=resume, as_json=as_json)


@contextmanager
def _opened(server: str | None, project: str | None, into: Path | None, *, yes: bool) -> Iterator[Project]:
    """The project of which a session is written here. It is asked before that is done for another directory."""
    from smart_fork.team.changes import opened

    with opened(server, project) as where:
        there = into is None or resolve(into).is_relative_to(where.place.root)
        if not there and not agreed(f"{into} is not in {where.place.root}. Write it for there?", yes=yes):
            raise typer.Abort
        yield where


def _agreed(where: Project, made: Plan, *, yes: bool) -> bool:
    if yes:
        return True
    shown = made.preview(where)
    questions = shown.questions()
    for line in shown.lines() if questions else ():
        say(line)
    return all(agreed(question, yes=False) for question in questions)


def _print_plan(where: Project, made: Plan, *, as_json: bool) -> None:
    shown = made.preview(where)
    if as_json:
        session_id = made.alias.session_id if made.alias else None
        about = {"verb": "push", "dry_run": True, "session_id": session_id, "alias": made.name or None}
        print_json(about | shown.as_json())
        return
    for line in shown.lines():
        out.print(plain(line))


def _finish(done: Shared, *, resume: bool, as_json: bool) -> None:
    print_shared(done, as_json=as_json)
    if resume and done.files:
        from smart_fork.cli.start import go_on

        go_on(done.files[0], done.agent)
