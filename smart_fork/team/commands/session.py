"""``pull``, ``branch`` and ``fork``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexer.lazy import dataclass
from indexer.project import resolve
from smart_fork.agents.options import said, takes
from smart_fork.cli.output import wants_json
from smart_fork.team.commands import words
from smart_fork.team.commands.words import app
from smart_fork.team.requests import Description

if TYPE_CHECKING:
    from smart_fork.team.branch import BranchAsked
    from smart_fork.team.project import Project, Shared
    from smart_fork.team.pull import TakenAs


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a session to branch, and the branch's visibility."""

    at: str | None = said(help="Number of messages to take, as in `team show`, or `head`.")
    local: bool = said(bool, default=False, help="Only on this machine, until the first push.")
    pull: bool = said(bool, default=True, help="Only on the server.", flags=("--no-pull",))

    def asked(self, described: Description) -> BranchAsked:
        """Return the checked request."""
        from smart_fork.team.branch import BranchAsked

        return BranchAsked(at=words.number_of(self.at), **described.checked(), local=self.local, pull=self.pull)


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Options for the copy on this machine."""

    alias: str | None = said(help="Alias on this machine.")
    platform: str | None = said(help="Agent for the copy. Default: the original agent.")
    resume: bool = said(bool, default=False, help="Resume it here immediately.")
    into: Path | None = said(Path, help="Working directory here. Default: the project's root.")
    yes: bool = said(bool, default=False, help="Do not ask for confirmation.", flags=("--yes", "-y"))

    def taken(self, *, track: bool = True, force: bool = False) -> TakenAs:
        """Return the request to write it."""
        from smart_fork.team.pull import TakenAs

        return TakenAs(self.into, self.platform, self.alias, track, force)


@app.command("pull")
@takes(order="into platform resume alias no_track force yes")
def pull(
    *,
    session: words.SessionArgument,
    copy: CopyOptions,
    no_track: Annotated[bool, "Do not track the copy."] = False,
    force: words.ForceOption = False,
    place: words.TeamPlace,
) -> None:
    """Copy one of your shared sessions to this machine."""
    from smart_fork.team.pull import pull as take_over

    with _opened(place, copy) as where:
        done = take_over(where, session, copy.taken(track=not no_track, force=force))
    _finish(done, copy)


_ORDER = "at title tags summary private public alias local no_pull platform resume into force yes"


@app.command("branch")
@takes(order=_ORDER)
def branch(
    *,
    session: words.CurrentArgument = None,
    part: Part,
    described: Description,
    copy: CopyOptions,
    place: words.TeamPlace,
) -> None:
    """Branch one of your own shared sessions."""
    from smart_fork.team.branch import branch as make

    asked = part.asked(described)
    with _opened(place, copy, ask=part.local) as where:
        done = make(where, "branch", session, asked, copy.taken())
    _finish(done, copy)


@app.command("fork")
@takes(order=_ORDER)
def fork(
    *,
    session: words.SessionArgument,
    part: Part,
    described: Description,
    copy: CopyOptions,
    force: words.ForceOption = False,
    place: words.TeamPlace,
) -> None:
    """Fork a teammate's public session."""
    from smart_fork.team.branch import branch as make

    asked = part.asked(described)
    with _opened(place, copy) as where:
        done = make(where, "fork", session, asked, copy.taken(force=force))
    _finish(done, copy)


@contextmanager
def _opened(place: words.TeamPlace, copy: CopyOptions, *, ask: bool = False) -> Iterator[Project]:
    """Open the project of which a session is written here. Ask before it is written for another directory."""
    into = copy.into
    with place.current(ask=ask) as where:
        there = into is None or resolve(into).is_relative_to(where.place.root)
        if not there and not words.agreed(
            f"{into} is not in {where.place.root}. Write it for that directory?", yes=copy.yes
        ):
            raise typer.Abort
        yield where


def _finish(done: Shared, copy: CopyOptions) -> None:
    resumed = copy.resume and done.files
    if not (resumed and wants_json()):
        words.print_shared(done)
    if resumed:
        from smart_fork.cli.start import go_on

        go_on(done.files[0], done.agent, done.as_json())
