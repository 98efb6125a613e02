"""``worktrees``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from smart_fork.cli.output import out, plain, print_json, say
from smart_fork.cli.search import JsonOption

if TYPE_CHECKING:
    from smart_fork.worktrees import WorkersTree


def worktrees(
    pruning: Annotated[
        bool, typer.Option("--prune", help="Remove those of ended workers that hold nothing unsaved.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """The git worktrees that were made for workers: what is in each, and whether it can be removed."""
    from smart_fork import worktrees as trees
    from smart_fork.processes import SystemProcesses

    gone: list[WorkersTree] = []
    if pruning:
        gone, left = trees.prune(SystemProcesses())
    else:
        left = trees.worktrees(SystemProcesses())
    if as_json:
        removed = {"removed": [one.worktree for one in gone]} if pruning else {}
        print_json({"worktrees": [one.as_json() for one in left], **removed})
        return
    for one in gone:
        out.print(plain(f"Removed {one.worktree} and {one.branch}"))
    for one in left:
        _print(one)
    if not left and not gone:
        say("No worktrees were made here, or all are gone.")


def _print(one: WorkersTree) -> None:
    changed = "?" if one.changed_files is None else one.changed_files
    ahead = "?" if one.ahead is None else one.ahead
    out.print(plain(one.worktree, "bold"))
    out.print(plain(f"  {one.branch} · {one.name} ({one.worker_id}) · changed files: {changed} · commits: {ahead}"))
    out.print(plain("  can be removed: smart-fork worktrees --prune" if one.removable else f"  kept: {one.reason}"))
