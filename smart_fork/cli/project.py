"""The commands ``project`` and ``project adopt``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from smart_fork.cli.command import CommandApp
from smart_fork.cli.options import ProjectOption, with_options
from smart_fork.cli.output import out, plain, printed_as_json
from smart_fork.finding.project_places import described
from smart_fork.finding.request import current_project

if TYPE_CHECKING:
    from smart_fork.finding.project_places import AboutProject


app = CommandApp(help="Show which directories this project's sessions come from.", invoke_without_command=True)

#: The reasons why another directory belongs to the same project, in words.
_WHYS = {
    "worktree": "a worktree of this repository",
    "reflog": "the repository was there before it moved",
    "remote": "a clone with the same remote and history",
    "clone": "this repository was cloned from it",
    "commits": "its sessions made commits that are in this repository",
    "adopted": "adopted by you",
}


@app.callback()
@with_options
def project(ctx: typer.Context, project: ProjectOption = None) -> None:
    """Show which directories this project's sessions come from, and why.

    A repository is recognized by its first commits and its remote, wherever it is moved or cloned.
    """
    if ctx.invoked_subcommand is None:
        _print_project(described(current_project(project)))


@app.command("adopt")
def adopt(
    directory: Annotated[str, typer.Argument(help="The directory that the sessions name. It may be gone.")],
    remove: Annotated[bool, "Undo it."] = False,
    project: ProjectOption = None,
) -> None:
    """Give the sessions of another directory to this project."""
    from smart_fork.finding.project_index import adopt as given

    _print_project(given(current_project(project), directory, remove=remove))


def _print_project(about: AboutProject) -> None:
    if printed_as_json(about):
        return
    out.print(plain(about.project_path, "bold"))
    if about.remote:
        out.print(f"  remote {about.remote}")
    for root in about.root_commits:
        out.print(f"  first commit {root}")
    for one in about.places:
        out.print(f"  also {one.directory}: {_WHYS[one.why]}")
    for directory in about.maybe:
        out.print(f"  maybe {directory}: it shares history. smart-fork project adopt {directory}")
