"""Tests of uncommitted changes that are copied to a worktree or compared with a commit, with real git."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smart_fork.errors import ForkRefused, ProgramFailed
from smart_fork.system.processes import Processes
from smart_fork.workers.uncommitted import FileChange, difference
from smart_fork.workers.worktree import Worktree
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.slow

PROCESSES = Processes()


def git(folder: Path, *words: str, check: bool = True) -> str:
    command = ["git", "--no-optional-locks", *words]
    return os.fsdecode(subprocess.run(command, cwd=folder, check=check, capture_output=True).stdout)


def filled(folder: Path) -> Path:
    """Make a repository with a file of every kind."""
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    (folder / "src/b.txt").write_text("b\n")
    (folder / "picture").write_bytes(bytes(range(256)))
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("a.txt")
    (folder / ".gitignore").write_text("*.log\n/out/\n")
    (folder / "kept.log").write_text("kept\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "--force", ".")
    git(folder, "commit", "-q", "-m", "First")
    return folder


@pytest.fixture
def repo(home) -> Path:
    return filled(home / "shop")


def status(folder: Path) -> str:
    return git(folder, "status", "--porcelain", "-z", "--untracked-files=all")


def contents(folder: Path) -> dict[str, object]:
    """Return every file that git knows or would add: its kind, mode and content."""
    names = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return {name: seen for name in names if name and (seen := look(folder / name)) is not None}


def look(path: Path) -> object:
    try:
        if path.is_symlink():
            return str(path.readlink())
        return path.read_bytes(), bool(path.stat().st_mode & 0o100)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def everything(folder: Path) -> dict[str, object]:
    """Return the working files with their times, the index and the stashes."""
    found: dict[str, object] = {"stashes": git(folder, "stash", "list"), "head": git(folder, "rev-parse", "HEAD")}
    for path in sorted(folder.rglob("*")):
        where = path.relative_to(folder)
        if (where.parts[0] == ".git" and where.parts[1:] != ("index",)) or where.parts[0] == ".worktrees":
            continue
        found[str(where)] = path.lstat().st_mode, path.lstat().st_mtime_ns, look(path)
    return found


def assert_carried_over(repo: Path, name: str = "x") -> Path:
    before = everything(repo)

    made = Worktree.create(repo, name, PROCESSES, with_changes=True)

    assert before == everything(repo)
    assert status(repo) == status(made.path)
    assert contents(repo) == contents(made.path)
    for what in ("--cached", "--binary"):
        assert git(repo, "diff", what) == git(made.path, "diff", what)
    assert ((), b"") == difference(made.path, made.base, PROCESSES, patch=True)
    return made.path


NAMES = ["a.txt", "src/b.txt", "src/new.txt", "picture", "run", "link", "kept.log", "x.log", "out/o", "new", "src", "ü b\nc", "-x"]  # fmt: skip
names = st.sampled_from(NAMES)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), names, st.binary(max_size=6) | st.just(b"one\ntwo\nthree\n")),
        st.tuples(st.just("same size"), names, st.just(0)),
        st.tuples(st.sampled_from(["delete", "mode", "add", "announce", "unstage", "forget"]), names, st.just(0)),
        st.tuples(st.sampled_from(["rename", "move", "link"]), names, names),
        st.tuples(st.just("stash"), st.just(""), st.just(0)),
    ),
    max_size=12,
)


def perform(repo: Path, what: str, name: str, more: object) -> None:
    """Do one of a person's actions; do nothing if it is impossible."""
    path = repo / name
    try:
        if what == "write":
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(more)
        elif what == "same size":
            path.write_bytes(path.read_bytes()[::-1])
        elif what == "delete":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif what == "mode":
            path.chmod(path.stat().st_mode ^ 0o111)
        elif what in ("rename", "link"):
            (repo / more).parent.mkdir(exist_ok=True)
            path.rename(repo / more) if what == "rename" else path.symlink_to(more)
    except OSError:
        return
    words = {
        "add": ["add", "--force", "--", name], "announce": ["add", "--force", "-N", "--", name], "move": ["mv", "--", name, str(more)],
        "unstage": ["reset", "-q", "--", name], "forget": ["rm", "-q", "--cached", "-r", "--", name], "stash": ["stash"],
    }  # fmt: skip
    if what in words:
        git(repo, *words[what], check=False)


@settings(max_examples=full_or_sample(25, 6))
@given(OPERATIONS)
def test_a_worktree_with_changes_looks_like_the_directory_that_it_was_made_from(operations):
    """F-099: staged, unstaged and new files, deletions, renames, modes, binary files and symbolic links."""
    with tempfile.TemporaryDirectory() as folder:
        repo = filled(Path(folder, "shop"))
        for operation in operations:
            perform(repo, *operation)

        assert_carried_over(repo)


def test_what_is_staged_and_what_is_not_stay_apart(repo):
    (repo / "a.txt").write_text("staged\n")
    git(repo, "add", "a.txt")
    (repo / "a.txt").write_text("staged\nand then some\n")
    (repo / "announced").write_text("x\n")
    git(repo, "add", "-N", "announced")
    (repo / "new").write_text("new\n")
    git(repo, "rm", "-q", "picture")
    (repo / "run").unlink()

    worktree = assert_carried_over(repo)

    assert "MM a.txt\0 A announced\0D  picture\0 D run\0?? new\0" == status(worktree)
    assert "smart-fork/x\n" == git(worktree, "branch", "--show-current")


@pytest.mark.thorough
def test_a_change_that_git_cannot_see_by_time_and_size_is_carried_over(repo):
    """The file is as young as the index, and as long as before."""
    git(repo, "config", "core.trustctime", "false")
    moment = 1_700_000_000_000_000_000
    os.utime(repo / "a.txt", ns=(moment, moment))
    git(repo, "update-index", "--refresh")
    (repo / "a.txt").write_text("ONE\nTWO\nTHREE\n")
    for path in (repo / "a.txt", repo / ".git/index"):
        os.utime(path, ns=(moment, moment))
    assert " M a.txt\0" == status(repo)

    assert_carried_over(repo)


def test_what_is_ignored_stays_behind_unless_it_is_tracked(repo):
    (repo / "x.log").write_text("ignored\n")
    (repo / "kept.log").write_text("changed\n")

    worktree = assert_carried_over(repo)

    assert not (worktree / "x.log").exists()
    assert "changed\n" == (worktree / "kept.log").read_text()


def test_no_hook_of_the_repository_runs(repo, home):
    """X-002."""
    hooks = repo / ".hooks"
    hooks.mkdir()
    for name in ("post-checkout", "post-index-change", "pre-commit", "reference-transaction", "fsmonitor"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch '{home}/HACKED'\n")
        (hooks / name).chmod(0o755)
    git(repo, "config", "core.hooksPath", ".hooks")
    git(repo, "config", "core.fsmonitor", ".hooks/fsmonitor")
    (repo / "a.txt").write_text("changed\n")

    made = Worktree.create(repo, "x", PROCESSES, with_changes=True)
    difference(made.path, made.base, PROCESSES, patch=True)

    assert not (home / "HACKED").exists()


def test_files_for_which_there_is_a_filter_are_carried_over_as_they_are(repo, home):
    for what in ("clean", "smudge"):
        git(repo, "config", f"filter.shout.{what}", f"touch '{home}/HACKED'; cat")
    git(repo, "config", "filter.shout.required", "true")
    (repo / ".gitattributes").write_text("*.quiet filter=shout\n*.crlf text eol=crlf\n")
    (repo / "x.quiet").write_text("hush\n")
    (repo / "x.crlf").write_bytes(b"one\r\ntwo\r\n")

    worktree = Worktree.create(repo, "x", PROCESSES, with_changes=True).path

    assert not (home / "HACKED").exists()
    assert "hush\n" == (worktree / "x.quiet").read_text()
    assert b"one\r\ntwo\r\n" == (worktree / "x.crlf").read_bytes()


@pytest.mark.thorough
def test_a_detached_head_works(repo):
    git(repo, "checkout", "-q", "--detach")
    (repo / "a.txt").write_text("changed\n")

    assert_carried_over(repo)


@pytest.mark.thorough
def test_a_bare_repository_with_worktrees_works(repo, home):
    git(home, "clone", "-q", "--bare", str(repo), "bare.git")
    git(home / "bare.git", "worktree", "add", "-q", str(home / "side"), "main")
    (home / "side/a.txt").write_text("changed\n")

    assert home / "side/.worktrees/x" == assert_carried_over(home / "side")


@pytest.mark.parametrize(
    "setting",
    thorough_except_first([["core.splitIndex", "true"], ["core.untrackedCache", "true"], ["index.version", "4"]]),
)
def test_every_kind_of_index_works(repo, setting):
    git(repo, "config", *setting)
    git(repo, "update-index", "--split-index" if "split" in setting[0] else "--refresh")
    (repo / "new").write_text("new\n")
    git(repo, "add", "new")
    (repo / "a.txt").write_text("changed\n")

    assert_carried_over(repo)


@pytest.mark.parametrize("cone", thorough_except_first(["--cone", "--no-cone", "--sparse-index"]))
def test_a_sparse_checkout_works_or_is_refused(repo, cone):
    git(repo, "sparse-checkout", "set", *([cone] if cone != "--sparse-index" else [cone, "--cone"]), *(["src"] if cone != "--no-cone" else ["/src/", "/a.txt"]))  # fmt: skip
    (repo / "src/b.txt").write_text("changed\n")
    (repo / "src/new").write_text("new\n")
    assert_carried_over(repo)

    (repo / "outside").mkdir()
    (repo / "outside/new").write_text("new\n")
    with pytest.raises(ForkRefused, match="sparse"):
        Worktree.create(repo, "y", PROCESSES, with_changes=True)
    assert not (repo / ".worktrees/y").exists()
    assert "" == git(repo, "branch", "--list", "smart-fork/y")


def test_changes_inside_a_submodule_are_refused(repo, home):
    filled(home / "part")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(home / "part"), "part")
    git(repo, "commit", "-q", "-m", "Part")
    (repo / "a.txt").write_text("changed\n")
    Worktree.create(repo, "x", PROCESSES, with_changes=True)

    (repo / "part/a.txt").write_text("changed\n")

    with pytest.raises(ForkRefused, match="submodule part"):
        Worktree.create(repo, "y", PROCESSES, with_changes=True)


def test_a_repository_inside_that_git_does_not_know_is_refused(repo):
    git(repo, "init", "-q", "inner")
    (repo / "inner/file").write_text("x\n")

    with pytest.raises(ForkRefused, match="separate repository"):
        Worktree.create(repo, "x", PROCESSES, with_changes=True)

    assert not (repo / ".worktrees").exists() or not list((repo / ".worktrees").iterdir())


def test_a_merge_with_conflicts_is_refused(repo):
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "a.txt").write_text("theirs\n")
    git(repo, "commit", "-q", "-a", "-m", "Theirs")
    git(repo, "checkout", "-q", "main")
    (repo / "a.txt").write_text("ours\n")
    git(repo, "commit", "-q", "-a", "-m", "Ours")
    git(repo, "merge", "other", check=False)

    with pytest.raises(ForkRefused, match="unfinished merge"):
        Worktree.create(repo, "x", PROCESSES, with_changes=True)


def test_what_is_carried_over_is_not_garbage(repo):
    (repo / "a.txt").write_text("changed\n")
    made = Worktree.create(repo, "x", PROCESSES, with_changes=True)
    (made.path / "a.txt").write_text("changed again\n")

    git(repo, "gc", "-q", "--prune=now")

    assert [FileChange("a.txt", 1, 1)] == list(difference(made.path, made.base, PROCESSES)[0])
    made.remove(PROCESSES)
    assert "refs/heads/main\n" == git(repo, "for-each-ref", "--format=%(refname)")


def kept_in(repo: Path) -> list[Path]:
    """Return git's files there, without the lock of its maintenance after a commit."""
    return sorted(path for path in (repo / ".git").rglob("objects/*") if path.suffix != ".lock")


def test_a_difference_is_what_was_committed_and_what_was_not(repo):
    """The objects that a comparison makes are not left in the repository."""
    (repo / "mine").write_text("mine\n")
    made = Worktree.create(repo, "x", PROCESSES, with_changes=True)
    (made.path / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    git(made.path, "add", "a.txt")
    git(made.path, "commit", "-q", "-m", "Four")
    (made.path / "run").unlink()
    (made.path / "picture").rename(made.path / "ü picture\n")
    (made.path / "binary").write_bytes(b"\0\1")
    (made.path / "new").write_text("new\nfile\n")
    objects = kept_in(repo)

    files, patch = difference(made.path, made.base, PROCESSES, patch=True)

    assert [
        FileChange("a.txt", 1, 0),
        FileChange("binary", None, None),
        FileChange("new", 2, 0),
        FileChange("run", 0, 1),
        FileChange("ü picture\n", None, None),
    ] == sorted(files, key=lambda file: file.path)
    assert b"+four\n" in patch
    assert b"mine" not in patch
    assert objects == kept_in(repo)


@pytest.mark.parametrize("base", thorough_except_first(["", "--output=HACKED", "HEAD:a.txt", "0" * 40]))
def test_a_base_that_is_no_commit_is_an_error(repo, base):
    with pytest.raises(ProgramFailed, match="git"):
        difference(repo, base, PROCESSES)

    assert not (repo / "HACKED").exists()
