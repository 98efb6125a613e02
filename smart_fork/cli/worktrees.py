"""``worktrees``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from smart_fork.cli.options import ProjectOption
from smart_fork.cli.output import out, plain, print_json, say, say_notes, wants_json
from smart_fork.finding.request import current_project
from smart_fork.system.processes import Processes
from smart_fork.workers import termination as trees
from smart_fork.workers.termination import WorkersTree


def worktrees(
    prune: Annotated[bool, "Remove worktrees of ended workers without unsaved work."] = False,
    project: ProjectOption = None,
    everywhere: Annotated[bool, typer.Option("--all", "--all-projects", "-A", help="All projects.")] = False,
) -> None:
    """The git worktrees that were made for workers: what is in each, and whether it can be removed."""
    within = None if everywhere else current_project(project)
    gone: list[WorkersTree] = []
    copies: list[Path] = []
    kept: list[str] = []
    if prune:
        gone, left = trees.prune(Processes(), within)
        copies, kept = trees.remove_copies_of_gone(within)
    else:
        left = trees.worktrees(Processes(), within)
    if wants_json():
        told = trees.WorkersTrees(tuple(left))
        if prune:
            removed, copied = tuple(one.worktree for one in gone), tuple(map(str, copies))
            told = replace(told, removed=removed, copies=copied, notes=tuple(kept))
        print_json(told.as_json())
        return
    for one in gone:
        out.print(plain(f"Removed {one.worktree} and {one.branch}"))
    for path in copies:
        out.print(plain(f"Removed {path}, a copy that was made for it"))
    say_notes(kept)
    for one in left:
        _print(one, everywhere=everywhere)
    if not left and not gone:
        say("No worktrees were made here, or all are gone." + ("" if everywhere else " --all looks everywhere."))


def _print(one: WorkersTree, *, everywhere: bool) -> None:
    changed = "?" if one.changed_files is None else one.changed_files
    ahead = "?" if one.ahead is None else one.ahead
    out.print(plain(one.worktree, "bold"))
    out.print(plain(f"  {one.branch} · {one.name} ({one.worker_id}) · changed files: {changed} · commits: {ahead}"))
    pruning = "smart-fork worktrees --prune" + (" --all" if everywhere else "")
    out.print(plain(f"  can be removed: {pruning}" if one.removable else f"  kept: {one.reason}"))
