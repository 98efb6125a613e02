"""Tests of worktrees, with real git (F-120)."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.errors import ForkRefused, ProgramFailed
from smart_fork.finding.git import Repository
from smart_fork.system.processes import Processes
from smart_fork.workers.worktree import Worktree, plain_name
from tests.support.cases import thorough_except_first

PROCESSES = Processes()


def git(folder, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_a_worktree_has_a_branch_of_its_own_and_does_not_show_in_git_status(repo):
    made = Worktree.create(repo, "retry", PROCESSES)

    assert (repo / ".worktrees/retry", "smart-fork/retry") == (made.path, made.branch)
    assert "smart-fork/retry\n" == git(made.path, "branch", "--show-current")
    assert "# shop\n" == (made.path / "README.md").read_text()
    assert "" == git(repo, "status", "--porcelain")
    Worktree.create(repo, "other", PROCESSES)
    assert 1 == (repo / ".git/info/exclude").read_text().count("/.worktrees/")


def test_names_that_are_taken_get_a_number(repo):
    git(repo, "branch", "smart-fork/retry-1")
    (repo / ".worktrees").mkdir()
    (repo / ".worktrees/retry-2").write_text("")

    made = [Worktree.create(repo, "retry", PROCESSES).path.name for _ in range(3)]

    assert ["retry", "retry-3", "retry-4"] == made
    assert "fork" == Worktree.create(repo, None, PROCESSES).path.name


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("smart-fork", "smart-fork-retry"), ("smart-fork/retry/old", "smart-fork/retry-1"), ("Smart", "smart-fork/retry")],
)
def test_a_branch_that_git_cannot_keep_beside_ours_stops_no_worktree(repo, theirs, ours, packed):
    git(repo, "branch", theirs)
    if packed:
        git(repo, "pack-refs", "--all")
    planned = Worktree.plan(repo, "retry", PROCESSES)

    made = Worktree.create(repo, "retry", PROCESSES)

    assert (ours, planned) == (made.branch, made)
    assert ours == git(made.path, "branch", "--show-current").strip()
    assert theirs in git(repo, "branch", "--list", theirs)
    assert None is made.remove_if_saved(PROCESSES)
    assert "" == git(repo, "branch", "--list", ours)


def test_a_file_where_worktrees_are_kept_is_said_before_anything_is_made(repo):
    (repo / Repository.WORKTREES).write_text("")

    with pytest.raises(ForkRefused, match="is a file"):
        Worktree.plan(repo, "retry", PROCESSES)


def test_a_worktree_starts_from_what_is_checked_out_where_it_was_asked_for(repo):
    first = Worktree.create(repo, "first", PROCESSES)
    (first.path / "new.txt").write_text("new")
    git(first.path, "add", ".")
    git(first.path, "commit", "-q", "-m", "New")

    second = Worktree.create(first.path, "second", PROCESSES)

    assert repo / ".worktrees/second" == second.path
    assert (second.path / "new.txt").exists()


def test_planning_makes_nothing(repo):
    """F-107."""
    planned = Worktree.plan(repo, "retry", PROCESSES)

    assert not planned.path.parent.exists()
    assert planned == Worktree.create(repo, "retry", PROCESSES)


def test_a_worktree_can_be_taken_away_again(repo):
    made = Worktree.create(repo, "retry", PROCESSES)

    made.remove(PROCESSES)

    assert not made.path.exists()
    assert "* main\n" == git(repo, "branch")


def test_several_at_once_get_different_ones(repo):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: Worktree.create(repo, "retry", PROCESSES), range(4)))

    assert {"retry", "retry-1", "retry-2", "retry-3"} == {one.path.name for one in made}


@pytest.mark.parametrize("lasting", [False, True])
def test_what_another_git_has_half_made_is_waited_for_and_no_branch_is_left(repo, lasting):
    """Git fails if it meets a worktree that another process is just making."""
    half = repo / ".git/worktrees/half"
    half.mkdir(parents=True)
    (half / "gitdir").write_text(f"{repo}/.worktrees/half/.git\n")
    (half / "commondir").touch()

    class Meanwhile(Processes):
        def run(self, argv, **more):
            done = super().run(argv, **more)
            if "worktree" in argv and not lasting:
                shutil.rmtree(half, ignore_errors=True)
            return done

    if lasting:
        with pytest.raises(ProgramFailed, match="git worktree add failed"):
            Worktree.create(repo, "retry", Meanwhile())
    else:
        assert "retry" == Worktree.create(repo, "retry", Meanwhile()).path.name
    branches = git(repo, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    assert ["main"] + (not lasting) * ["smart-fork/retry"] == branches
    assert lasting != (repo / ".worktrees/retry").exists()


def test_where_there_is_no_repository_there_is_no_worktree(home, repo):
    with pytest.raises(ForkRefused, match="Not in a git repository"):
        Worktree.create(home, None, PROCESSES)

    empty = home / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    with pytest.raises(ForkRefused, match="No commit yet"):
        Worktree.create(empty, None, PROCESSES)
    git(home, "init", "-q", "--bare", "bare.git")
    for inside in ("bare.git", "bare.git/hooks"):
        with pytest.raises(ForkRefused, match=r"bare.git is a bare repository") as refused:
            Worktree.create(home / inside, None, PROCESSES)
        assert "Make it from one of its worktrees" in refused.value.hint


def test_git_s_own_folder_is_of_its_repository(repo):
    assert Worktree.plan(repo / ".git/hooks", "x", PROCESSES).path == repo / ".worktrees/x"


def test_a_repository_that_git_does_not_read_is_not_called_empty(repo):
    (repo / ".git/config").write_text("[broken")

    with pytest.raises(ProgramFailed, match="git cannot read"):
        Worktree.create(repo, None, PROCESSES)


def test_a_repository_cannot_lead_the_worktree_elsewhere(repo, tmp_path):
    """X-002."""
    (repo / ".worktrees").symlink_to(tmp_path)

    with pytest.raises(ForkRefused, match="symbolic link"):
        Worktree.create(repo, "retry", PROCESSES)

    assert [] == list(tmp_path.iterdir())


def test_inside_a_git_hook_the_repository_that_was_named_is_meant(repo, home, monkeypatch):
    other = home / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))

    assert Worktree.create(repo, "retry", PROCESSES).path.is_relative_to(repo)
    monkeypatch.delenv("GIT_DIR")
    assert 2 == len(git(repo, "worktree", "list").splitlines())


@pytest.mark.parametrize(
    "name",
    thorough_except_first(
        ["--force", "../../x", "a b; touch x", "$(touch x)", "x.lock", "ü", "a..b", "@{0}", "x" * 99, "", "."]
    ),
)
def test_any_name_is_made_a_branch_and_a_folder(repo, name):
    """F-104."""
    made = Worktree.create(repo, name, PROCESSES)

    assert repo / ".worktrees" == made.path.parent
    assert made.path.is_dir()
    assert 30 >= len(made.path.name)
    assert ["README.md"] == [path.name for path in repo.iterdir() if not path.name.startswith(".")]


@given(st.text())
def test_a_plain_name_is_always_possible(name):
    plain = plain_name(name)

    assert 1 <= len(plain) <= 30
    assert not set(plain) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert plain[0] not in "-."
    assert plain[-1] != "."
    assert not plain.endswith(".lock")
    assert ".." not in plain
    assert plain == plain_name(plain)


def test_files_that_a_filter_makes_are_as_git_stores_them_and_named(repo):
    """These are usually large files: their filter is a program, and any repository may name its files."""
    (repo / "movie").write_text("where it is kept\n")
    (repo / ".gitattributes").write_text("movie filter=lfs\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "Movie")
    assert "" == Worktree.create(repo, "x", PROCESSES).left_unfiltered(PROCESSES)

    git(repo, "config", "filter.lfs.smudge", "tr a-z A-Z")
    git(repo, "config", "filter.lfs.required", "true")
    made = Worktree.create(repo, "y", PROCESSES)

    said = made.left_unfiltered(PROCESSES)
    assert "1 files, such as movie" in said
    assert "git lfs pull" in said
    assert "where it is kept\n" == (made.path / "movie").read_text()


def test_submodules_are_empty_in_a_worktree_and_named(repo, home):
    for name in ("paint", "wood"):
        git(home, "init", "-q", "-b", "main", name)
        git(home / name, "commit", "-q", "--allow-empty", "-m", "First")
    assert "" == Worktree.empty_submodules(repo, PROCESSES)
    for name in ("paint", "wood"):
        git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(home / name), f"libs/{name}")
    git(repo, "commit", "-qm", "Submodules")

    assert [] == list((Worktree.create(repo, "x", PROCESSES).path / "libs/paint").iterdir())
    assert "empty in the worktree: libs/paint and 1 more" in Worktree.empty_submodules(repo, PROCESSES)


def test_a_repository_that_is_kept_elsewhere_has_worktrees(repo, home):
    git(repo, "init", "-q", "--separate-git-dir", str(home / "kept"))

    assert "# shop\n" == (Worktree.create(repo, "x", PROCESSES).path / "README.md").read_text()
    assert "/.worktrees/" in (home / "kept/info/exclude").read_text()
