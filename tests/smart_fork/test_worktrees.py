"""The worktrees that were made for workers, and which can go; with real git."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from smart_fork.processes import SystemProcesses
from smart_fork.registry import Registry
from smart_fork.worktree import create_worktree
from smart_fork.worktrees import prune, worktrees
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.world import git

PROCESSES = SystemProcesses()
NOBODY = 2**22 + 1  # more than a process id can be


@pytest.fixture
def worked(shop):
    """A worker in a worktree of its own."""

    def make(name: str, pid: int | None = NOBODY, state: str = "running"):
        made = create_worktree(shop, name, PROCESSES)
        with Registry() as registry:
            worker = registry.add(
                "claude", name=name, source_session_id="s", place="process", cwd=made.path,
                worktree=made.path, branch=made.branch, base_commit=made.base,
            )  # fmt: skip
            registry.set_started(worker.id, command=["x"], pid=pid)
            registry.set_state(worker.id, state)
        return made

    return make


def commit(folder: Path) -> None:
    (folder / "new").write_text("new")
    git(folder, "add", "new")
    git(folder, "commit", "-q", "-m", "New")


def test_each_is_listed_with_its_changes_and_whether_it_can_be_removed(worked):
    worked("clean")
    changed = worked("changed")
    commit(changed.path)
    (changed.path / "other").write_text("x")
    worked("living", pid=os.getpid())

    living, changes, clean = worktrees(PROCESSES)

    assert ("clean", 0, 0, True, True, None) == (
        clean.name,
        clean.changed_files,
        clean.ahead,
        clean.ended,
        clean.removable,
        clean.reason,
    )
    assert ("smart-fork/changed", 2, 1, False) == (
        changes.branch,
        changes.changed_files,
        changes.ahead,
        changes.removable,
    )
    assert "1 uncommitted or new file" in changes.reason
    assert (False, False) == (living.ended, living.removable)
    assert "has not ended" in living.reason


def test_only_those_of_ended_workers_that_hold_nothing_are_removed(worked):
    clean, changed, living = worked("clean"), worked("changed", state="ended"), worked("living", pid=os.getpid())
    started = worked("started", pid=None, state="starting")
    commit(changed.path)

    gone, left = prune(PROCESSES)

    assert [str(clean.path)] == [one.worktree for one in gone]
    assert [str(started.path), str(living.path), str(changed.path)] == [one.worktree for one in left]
    assert [False, True, True, True] == [one.path.exists() for one in (clean, changed, living, started)]
    assert 3 == len(worktrees(PROCESSES))


def test_a_worktree_that_several_workers_used_is_listed_once(worked):
    made = worked("x")
    with Registry() as registry:
        again = registry.add(
            "claude", source_session_id="s", place="process", cwd=made.path, kind="resume",
            worktree=made.path, branch=made.branch, base_commit=made.base,
        )  # fmt: skip

        (one,) = worktrees(PROCESSES)

    assert (again.id, False) == (one.worker_id, one.removable)


def test_what_is_left_of_a_worktree_is_listed_until_it_is_gone(worked, shop):
    made = worked("x")
    commit(made.path)
    git(shop, "worktree", "remove", str(made.path))

    (one,) = worktrees(PROCESSES)
    assert (None, 1, False) == (one.changed_files, one.ahead, one.removable)
    git(shop, "merge", "-q", made.branch)
    assert 1 == len(prune(PROCESSES)[0])
    assert [] == worktrees(PROCESSES)


def test_a_repository_that_is_gone_has_no_worktrees(worked, shop):
    worked("x")
    shutil.rmtree(shop)

    assert [] == worktrees(PROCESSES)


def test_the_command(run, worked):  # noqa: F811
    assert "No worktrees" in run("worktrees").err
    clean, changed = worked("clean"), worked("changed")
    commit(changed.path)

    listed = run("worktrees")
    (one, two) = json.loads(run("worktrees", "--json").out)["worktrees"]
    pruned = run("worktrees", "--prune")

    assert f"{clean.path}\n  smart-fork/clean · clean" in listed.out
    assert "can be removed: smart-fork worktrees --prune" in listed.out
    assert ("changed", 1, "clean", True) == (one["name"], one["ahead"], two["name"], two["removable"])
    assert f"Removed {clean.path}" in pruned.out
    assert "kept: " in pruned.out
    assert [] == json.loads(run("worktrees", "--prune", "--json").out)["removed"]
