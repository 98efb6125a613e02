"""Tests that removing a worktree loses nothing, and of the words that say what would be lost: real git and
processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from smart_fork.system.processes import Processes
from smart_fork.workers.worktree import Worktree
from tests.smart_fork.forks import snapshot
from tests.support.cases import thorough_except_first

PROCESSES = Processes()


def git(folder, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def made(repo) -> Worktree:
    return Worktree.create(repo, "x", PROCESSES)


def remove(made: Worktree) -> str | None:
    return made.remove_if_saved(PROCESSES)


def assert_kept(made: Worktree, reason: str) -> None:
    """Check that nothing was changed, and that the sentence names the content and the command to type."""
    before, refs = snapshot(made.path), git(made.repository, "for-each-ref")

    said = remove(made)

    assert said
    assert reason in said
    assert before == snapshot(made.path)
    assert refs == git(made.repository, "for-each-ref")


def commit(folder: Path, name: str = "new") -> None:
    (folder / name).write_text(name)
    git(folder, "add", name)
    git(folder, "commit", "-q", "-m", name)


def ignore(repository: Path, pattern: str) -> None:
    exclude = repository / ".git/info/exclude"
    exclude.write_text(exclude.read_text() + pattern + "\n")


def test_a_worktree_that_holds_nothing_is_removed_with_its_branch(made, repo):
    """F-120."""
    git(repo, "config", f"branch.{made.branch}.remote", "origin")

    assert remove(made) is None

    assert not made.path.exists()
    assert "refs/heads/main\n" == git(repo, "for-each-ref", "--format=%(refname)")
    assert 1 == len(git(repo, "worktree", "list").splitlines())
    assert made.branch not in git(repo, "config", "--list")


@pytest.mark.parametrize(
    "change",
    thorough_except_first(
        [
            lambda path: (path / "README.md").write_text("changed"),
            lambda path: (path / "README.md").unlink(),
            lambda path: (path / "README.md").chmod(0o755),
            lambda path: (path / "new").write_text("new"),
            lambda path: git(path, "rm", "-q", "--cached", "README.md"),
            lambda path: git(path, "mv", "README.md", "other"),
        ]
    ),
    ids=["changed", "deleted", "mode", "new", "unstaged", "renamed"],
)
def test_what_is_not_committed_is_kept(made, repo, change):
    git(repo, "config", "status.showUntrackedFiles", "no")
    change(made.path)

    assert_kept(made, "uncommitted or new file")
    assert f"git -C {repo} worktree remove --force {made.path} && git -C {repo} branch -D {made.branch}" in str(
        remove(made)
    )


@pytest.mark.thorough
def test_changes_that_were_carried_over_are_kept_too_and_called_so(repo):
    (repo / "README.md").write_text("changed")
    made = Worktree.create(repo, "x", PROCESSES, with_changes=True)

    assert_kept(made, "has 1 uncommitted or new file, as copied at the start")
    (made.path / "README.md").write_text("changed again")
    assert_kept(made, "has 1 uncommitted or new file; ")
    git(made.path, "checkout", "README.md")
    assert remove(made) is None
    assert "refs/heads/main\n" == git(repo, "for-each-ref", "--format=%(refname)")


@pytest.mark.parametrize("flag", thorough_except_first(["--assume-unchanged", "--skip-worktree"]))
def test_a_change_that_git_status_passes_over_is_kept(made, flag):
    git(made.path, "update-index", flag, "README.md")
    (made.path / "README.md").write_text("changed")

    assert_kept(made, "such as README.md")


def test_what_is_ignored_is_not_kept(made):
    (made.path / "x.log").write_text("x")
    ignore(made.repository, "*.log")

    assert remove(made) is None


def test_commits_are_kept_until_another_branch_or_a_remote_has_them(made, repo, home):
    commit(made.path)
    assert_kept(made, "has 1 commit on no other branch")
    git(home, "init", "-q", "--bare", "remote.git")
    git(repo, "remote", "add", "origin", str(home / "remote.git"))
    git(made.path, "push", "-q", "origin", "HEAD:elsewhere")
    git(repo, "fetch", "-q")

    assert remove(made) is None


def test_commits_that_were_merged_are_not_kept(made, repo):
    commit(made.path)
    git(repo, "merge", "-q", made.branch)

    assert remove(made) is None


def test_commits_beside_the_branch_are_kept(made):
    git(made.path, "checkout", "-q", "--detach")
    commit(made.path)

    assert_kept(made, "has 1 commit")
    git(made.path, "switch", "-q", "-c", "feature")
    assert remove(made) is None
    assert "feature" in git(made.repository, "branch")


def test_a_stash_that_was_made_there_is_kept(made, repo):
    (made.path / "README.md").write_text("changed")
    git(made.path, "stash")

    assert_kept(made, "has 1 stash")
    git(repo, "stash", "drop")
    (repo / "README.md").write_text("changed")
    git(repo, "stash")
    assert remove(made) is None


def test_where_a_process_works_nothing_is_removed(made):
    inner = made.path / "inner"
    inner.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], cwd=inner, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert_kept(made, f"process {process.pid} (python")
    assert remove(made) is None


def test_a_locked_worktree_is_kept(made):
    git(made.path, "worktree", "lock", "--reason", "on a stick", str(made.path))

    assert_kept(made, "is locked (on a stick)")


def test_a_worktree_inside_is_kept(made, repo):
    git(repo, "worktree", "add", "-q", "-b", "inner", str(made.path / "inner"))
    ignore(repo, "inner")

    assert_kept(made, "has another worktree in it")


def test_a_missing_worktree_is_left_to_the_person_until_git_has_forgotten_it(made, repo):
    shutil.rmtree(made.path)

    assert_kept(made, "worktree prune")
    git(repo, "worktree", "prune")
    assert remove(made) is None
    assert "refs/heads/main\n" == git(repo, "for-each-ref", "--format=%(refname)")


def test_the_branch_of_a_worktree_that_is_gone_is_kept_with_its_commits(made, repo):
    commit(made.path)
    git(repo, "worktree", "remove", str(made.path))

    assert_kept(made, "has 1 commit on no other branch")


def test_a_moved_worktree_is_left_where_it_is(made, home):
    git(made.repository, "worktree", "move", str(made.path), str(home / "moved"))

    assert_kept(made, f"is checked out in {home / 'moved'}")
    assert (home / "moved").is_dir()


@pytest.mark.thorough
def test_with_submodules_git_itself_decides(made, repo, home):
    git(home, "init", "-q", "part")
    commit(home / "part")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(home / "part"), "part")
    git(repo, "commit", "-q", "-m", "Part")
    git(made.path, "merge", "-q", "main")
    git(made.path, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")

    assert_kept(made, "submodules")


@pytest.mark.parametrize("what", thorough_except_first(["folder", "clone", "link", "main", "stranger", "nothing"]))
def test_a_path_that_is_no_worktree_of_ours_is_never_deleted(made, repo, home, what):
    """X-002."""
    path, branch = repo / ".worktrees/y", "smart-fork/y"
    if what == "folder":
        path.mkdir()
    elif what == "clone":
        git(home, "clone", "-q", str(repo), str(path))
    elif what == "link":
        path.symlink_to(made.path)
    elif what == "main":
        path = repo
    elif what == "stranger":
        git(repo, "worktree", "add", "-q", "-b", "own", str(home / "own"))
        path, branch = home / "own", "own"
    elif what == "nothing":
        path, branch = Path(repo, ".worktrees", "..", ".worktrees", "x"), "smart-fork/x"
    there, refs = snapshot(repo), git(repo, "for-each-ref")

    said = Worktree(path, branch, path.parent.parent, made.base).remove_if_saved(PROCESSES)

    assert said
    assert "stays" in said
    assert os.path.lexists(path)
    assert there == snapshot(repo)
    assert refs == git(repo, "for-each-ref")


@pytest.mark.parametrize("branch", thorough_except_first(["main", "smart-fork/*", "smart-fork/../main", "--all", ""]))
def test_a_branch_that_is_not_ours_is_never_deleted(made, repo, branch):
    said = replace(made, branch=branch).remove_if_saved(PROCESSES)

    assert "stays" in str(said)
    assert made.path.exists()
    assert "main" in git(repo, "branch")


def test_a_commit_that_is_made_meanwhile_is_kept(made, repo):
    """The branch moves after it was checked."""

    class Meanwhile(Processes):
        def run(self, argv, **more):
            if "update-ref" in argv and "-d" in argv:
                tree = git(repo, "rev-parse", "main^{tree}").strip()
                new = git(repo, "commit-tree", tree, "-p", "main", "-m", "Late").strip()
                git(repo, "update-ref", f"refs/heads/{made.branch}", new)
            return super().run(argv, **more)

    said = made.remove_if_saved(Meanwhile())

    assert "but not its branch" in str(said)
    assert "Late" in git(repo, "log", made.branch, "--format=%s")
