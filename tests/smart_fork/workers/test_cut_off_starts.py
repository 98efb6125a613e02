"""Tests of starts that are killed while git makes their worktree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from shutil import which

import pytest

from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.liveness import is_alive
from smart_fork.workers.recovery import undo_cut_off
from smart_fork.workers.registry import Registry
from smart_fork.workers.worktree_cleanup import prune, worktrees
from tests.smart_fork.forks import eventually, python
from tests.smart_fork.world import git

pytestmark = pytest.mark.slow

START = """
import os, sys
from pathlib import Path
from smart_fork.forking.start import Attempt
from smart_fork.system.processes import Machine
from smart_fork.workers.registry import Registry
with Registry() as registry, Attempt(Machine(), registry) as attempt:
    shop = Path(sys.argv[1])
    worker = registry.add("claude", source_session_id="s", place="process", cwd=shop, maker=os.getpid())
    attempt.worktree(worker, shop, "x")
    os.kill(os.getpid(), 9)
"""
#: What a git does with whoever calls it, by what it is called for.
KILLS = {
    "nothing made yet": ("update-ref", "kill -9 $PPID; exit 1"),
    "a branch": ("update-ref", '"$GIT" "$@"; kill -9 $PPID'),
    "an empty folder": ("worktree", 'mkdir -p "$SHOP/.worktrees/x"; kill -9 $PPID; exit 1'),
    "no files": ("worktree", '"$GIT" "$@"; kill -9 $PPID'),
    "a git that outlives it": (
        "worktree",
        'kill -9 $PPID; until [ -e "$SHOP.go" ]; do sleep 0.05; done; "$GIT" "$@"; touch "$SHOP.done"',
    ),
    "half of the files": (
        "read-tree",
        'cp "$SHOP/README.md" "$SHOP/.worktrees/x"; touch "$SHOP/.git/worktrees/x/index.lock"; kill -9 $PPID; exit 1',
    ),
    "all files": ("read-tree", '"$GIT" "$@"; kill -9 $PPID'),
    "all, before it was noted": ("nothing", ""),
}


@pytest.fixture
def cut_off(shop, tmp_path, monkeypatch):
    """Begin a start that is killed at this moment."""

    def begin(moment: str) -> None:
        word, does = KILLS[moment]
        wrapper = tmp_path / "bin/git"
        wrapper.parent.mkdir()
        wrapper.write_text(
            f"#!/bin/sh\nGIT={which('git')}; SHOP={shop}; export SHOP\n"
            f'for one in "$@"; do if [ "$one" = {word} ]; then {does or ":"}\nexit; fi; done\nexec "$GIT" "$@"\n'
        )
        wrapper.chmod(0o755)
        with monkeypatch.context() as killing:
            killing.setenv("PATH", str(wrapper.parent), prepend=os.pathsep)
            begun = subprocess.run(python(START, str(shop)), capture_output=True, check=False, env=os.environ)
        assert begun.returncode == -9, begun.stderr.decode()

    return begin


def left(shop: Path) -> tuple[bool, bool, bool]:
    """Return whether the folder, git's worktree entry and the branch exist."""
    listed, branches = (
        subprocess.run(["git", "-C", str(shop), *words], check=True, capture_output=True, text=True).stdout
        for words in (("worktree", "list"), ("branch", "--list", "smart-fork/*"))
    )
    return (shop / ".worktrees/x").exists(), ".worktrees" in listed, bool(branches)


@pytest.mark.parametrize("moment", KILLS)
def test_whoever_comes_next_undoes_it(shop, cut_off, moment):
    cut_off(moment)

    with Registry() as registry:
        (worker,) = registry.workers()
        around = Machine()
        assert not is_alive(worker, around), "it does not count for the limit"
        undo_cut_off(registry, around)
        assert "failed" == registry.get(worker.id).state

    if moment == "a git that outlives it":
        Path(f"{shop}.go").touch()
        eventually(Path(f"{shop}.done").exists)
    listed = worktrees(Processes(), None)
    assert left(shop) in ((False, False, False), (False, False, bool(listed)))
    prune(Processes(), None)
    assert left(shop) == (False, False, False)
    git(shop, "fsck")


@pytest.mark.parametrize("work", ["a new file", "a change", "a commit"])
def test_what_somebody_has_worked_in_since_stays(shop, cut_off, work):
    cut_off("all files")
    tree = shop / ".worktrees/x"
    (tree / ("README.md" if work == "a change" else "new")).write_text("mine")
    if work == "a commit":
        git(tree, "add", "new")
        git(tree, "commit", "-qm", "Mine")

    (one,) = worktrees(Processes(), None)

    assert (str(tree), False) == (one.worktree, one.removable)
    prune(Processes(), None)
    assert left(shop) == (True, True, True)


def test_one_whose_process_still_makes_it_is_left_alone(shop, monkeypatch):
    with Registry() as registry:
        worker = registry.add("claude", source_session_id="s", place="process", cwd=shop, maker=os.getpid())
        undo_cut_off(registry, Machine())

        assert "starting" == registry.get(worker.id).state
