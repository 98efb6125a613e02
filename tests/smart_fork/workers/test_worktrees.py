"""Tests of the worktrees made for workers, and of their removal, with real git."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from smart_fork.system.processes import Processes
from smart_fork.workers.registry import Registry
from smart_fork.workers.worktree import Worktree
from smart_fork.workers.worktree_cleanup import prune, worktrees
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.world import git

pytestmark = pytest.mark.slow

PROCESSES = Processes()
NOBODY = 2**22 + 1  # more than a process id can be


@pytest.fixture
def worked(shop, marked):
    """Return a worker in its own worktree."""

    def make(
        name: str, pid: int | None = NOBODY, state: str = "running", *, living: bool = False, repository: Path = shop
    ):
        made = Worktree.create(repository, name, PROCESSES)
        with Registry() as registry:
            worker = registry.add(
                "claude", name=name, source_session_id="s", place="process", cwd=made.path,
                worktree=made.path, branch=made.branch, base_commit=made.base,
            )  # fmt: skip
            registry.set_started(worker.id, command=["x"], pid=marked(worker.id) if living else pid)
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
    worked("living", living=True)

    living, changes, clean = worktrees(PROCESSES, None)

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
    assert "is still running" in living.reason


def test_only_those_of_ended_workers_that_hold_nothing_are_removed(worked):
    clean, changed, living = worked("clean"), worked("changed", state="ended"), worked("living", living=True)
    started = worked("started", pid=None, state="starting")
    commit(changed.path)

    gone, left = prune(PROCESSES, None)

    assert [str(clean.path)] == [one.worktree for one in gone]
    assert [str(started.path), str(living.path), str(changed.path)] == [one.worktree for one in left]
    assert [False, True, True, True] == [one.path.exists() for one in (clean, changed, living, started)]
    assert 3 == len(worktrees(PROCESSES, None))


@pytest.mark.thorough
def test_a_process_that_only_has_the_same_number_keeps_no_worktree(worked):
    """X-003: numbers are given again."""
    worked("x", pid=os.getpid())

    (one,) = worktrees(PROCESSES, None)
    assert (True, True) == (one.ended, one.removable)


def test_those_of_another_project_are_left_alone(run, worked, world, shop, monkeypatch):  # noqa: F811
    """From anywhere in the project, also from one of its worktrees."""
    other = world.repository("other")
    here, there = worked("here"), worked("there", repository=other)
    changed = worked("changed")
    commit(changed.path)
    monkeypatch.chdir(changed.path)

    listed = [one["worktree"] for one in json.loads(run("worktrees", "--json").out)["worktrees"]]
    pruned = json.loads(run("worktrees", "--prune", "--json").out)

    assert [str(changed.path), str(here.path)] == listed
    assert [str(here.path)] == pruned["removed"]
    assert there.path.exists()
    assert f"{there.path}\n" in run("worktrees", "-p", str(other)).out
    assert "can be removed: smart-fork worktrees --prune --all" in run("worktrees", "--all").out
    assert 2 == run("worktrees", "--all", "-p", str(other), "--prune").code
    assert [str(there.path)] == json.loads(run("worktrees", "--prune", "--all", "--json").out)["removed"]
    assert "No worktrees" in run("worktrees", "-p", str(other)).err


def test_a_worktree_that_several_workers_used_is_listed_once(worked):
    made = worked("x")
    with Registry() as registry:
        again = registry.add(
            "claude", source_session_id="s", place="process", cwd=made.path, kind="resume",
            worktree=made.path, branch=made.branch, base_commit=made.base,
        )  # fmt: skip

        (one,) = worktrees(PROCESSES, None)

    assert (again.id, False) == (one.worker_id, one.removable)


@pytest.mark.thorough
def test_what_is_left_of_a_worktree_is_listed_until_it_is_gone(worked, shop):
    made = worked("x")
    commit(made.path)
    git(shop, "worktree", "remove", str(made.path))

    (one,) = worktrees(PROCESSES, None)
    assert (None, 1, False) == (one.changed_files, one.ahead, one.removable)
    git(shop, "merge", "-q", made.branch)
    assert 1 == len(prune(PROCESSES, None)[0])
    assert [] == worktrees(PROCESSES, None)


def test_a_repository_that_is_gone_has_no_worktrees(worked, shop):
    worked("x")
    shutil.rmtree(shop)

    assert [] == worktrees(PROCESSES, None)


@pytest.mark.thorough
def test_the_command(run, worked, shop, monkeypatch):  # noqa: F811
    monkeypatch.chdir(shop)
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
