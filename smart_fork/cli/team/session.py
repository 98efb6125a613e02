"""``pull``, ``branch`` and ``fork``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexer.project import resolve
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
    from smart_fork.team.project import Project
    from smart_fork.team.shared import Shared

NoTrackOption = Annotated[bool, typer.Option("--no-track", help="Do not track the copy.")]
LocalOption = Annotated[bool, typer.Option("--local", help="Only on this machine, until the first push.")]
NoPullOption = Annotated[bool, typer.Option("--no-pull", help="Only on the server.")]


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
) -> None:
    """Copy one of your shared sessions to this machine."""
    from smart_fork.team.pull import TakenAs
    from smart_fork.team.pull import pull as take_over

    taken = TakenAs(into, platform, alias, not no_track, force)
    with _opened(server, project, into, yes=yes) as where:
        done = take_over(where, session, taken)
    _finish(done, resume=resume)


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
) -> None:
    """Branch one of your own shared sessions."""
    from smart_fork.team.branch import BranchAsked
    from smart_fork.team.branch import branch as make
    from smart_fork.team.pull import TakenAs

    seen = visibility_of(public=public, private=private)
    called, about = text_of(title, "--title", TEXT), text_of(summary, "--summary", SUMMARY)
    asked = BranchAsked(number_of(at), called, tags_of(tags), about, seen, local, not no_pull)
    with _opened(server, project, into, yes=yes, ask=local) as where:
        done = make(where, session, asked, TakenAs(into, platform, alias))
    _finish(done, resume=resume)


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
) -> None:
    """Fork a teammate's public session."""
    from smart_fork.team.branch import BranchAsked
    from smart_fork.team.branch import fork as make
    from smart_fork.team.pull import TakenAs

    seen = visibility_of(public=public, private=private)
    called, about = text_of(title, "--title", TEXT), text_of(summary, "--summary", SUMMARY)
    asked = BranchAsked(number_of(at), called, tags_of(tags), about, seen, local, not no_pull)
    with _opened(server, project, into, yes=yes) as where:
        done = make(where, session, asked, TakenAs(into, platform, alias, force=force))
    _finish(done, resume=resume)


@contextmanager
def _opened(
    server: str | None, project: str | None, into: Path | None, *, yes: bool, ask: bool = False
) -> Iterator[Project]:
    """The project of which a session is written here. It is asked before that is done for another directory."""
    from smart_fork.team.changes import opened

    with opened(server, project, ask=ask) as where:
        there = into is None or resolve(into).is_relative_to(where.place.root)
        if not there and not agreed(f"{into} is not in {where.place.root}. Write it for that directory?", yes=yes):
            raise typer.Abort
        yield where


def _finish(done: Shared, *, resume: bool) -> None:
    print_shared(done)
    if resume and done.files:
        from smart_fork.cli.start import go_on

        go_on(done.files[0], done.agent)
