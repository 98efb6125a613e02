"""Tests of the share of edited files that have changed in git since, with real git."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from indexer.session_work import Edits
from smart_fork.errors import ProgramFailed
from smart_fork.finding.fork_suitability import drifts
from smart_fork.finding.git import Repository
from smart_fork.system.processes import Processes
from tests.support.cases import thorough_except_first

START = 1_770_000_000


def git(folder: Path, *words: str, at: int = START) -> str:
    when = f"@{at} +0000"
    env = os.environ | {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, env=env, text=True).stdout


def commit(folder: Path, at: int, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} {at}\n")
    git(folder, "--literal-pathspecs", "add", "--", *names)
    git(folder, "commit", "-q", "-m", "Work", at=at)


def edits(*paths: Path | str, at: float = START + 100) -> Edits:
    return Edits(tuple(map(str, paths)), datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z"))


class Counting(Processes):
    def __init__(self) -> None:
        super().__init__()
        self.logs: list[bytes] = []

    def run(self, argv, *, input=b"", **how):  # noqa: A002
        if "log" in argv:
            self.logs.append(input)
        return super().run(argv, input=input, **how)


def drift(folder: Path, one: Edits) -> tuple[int, int] | None:
    found = drifts(Repository.open_to_look_back(folder, Processes()), {0: one}).get(0)
    return found and (found.files, found.changed)


@pytest.fixture
def shop(home):
    folder = home / "shop"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, START, "a.py", "b.py", "sub/c.py")
    return folder


def test_files_that_a_later_commit_touches_have_changed(shop):
    one = edits(shop / "a.py", shop / "sub/c.py")
    assert drift(shop, one) == (2, 0)

    commit(shop, START + 200, "a.py", "other.py")

    assert drift(shop, one) == (2, 1)
    assert drifts(Repository.open_to_look_back(shop / "sub", Processes()), {0: one})[0].share == 0.5
    assert drift(shop, edits(shop / "a.py", at=START + 200.5)) == (1, 0)


def test_deleted_and_renamed_files_have_changed_and_files_that_git_never_had_have_not(shop):
    git(shop, "rm", "-q", "a.py")
    git(shop, "mv", "b.py", "d.py")
    git(shop, "commit", "-q", "-m", "Away", at=START + 200)

    assert drift(shop, edits(shop / "a.py", shop / "b.py", shop / "ignored.log")) == (3, 2)


def test_uncommitted_changes_do_not_count(shop):
    (shop / "a.py").write_text("changed\n")
    git(shop, "add", "a.py")
    (shop / "b.py").unlink()

    assert drift(shop, edits(shop / "a.py", shop / "b.py")) == (2, 0)


def test_what_a_merge_brings_counts_when_it_is_merged(shop):
    git(shop, "checkout", "-q", "-b", "side")
    commit(shop, START + 50, "a.py")
    git(shop, "checkout", "-q", "main")
    assert drift(shop, edits(shop / "a.py", at=START + 60)) == (1, 0)

    git(shop, "merge", "-q", "--no-ff", "-m", "Merge", "side", at=START + 200)

    assert drift(shop, edits(shop / "a.py", shop / "b.py", at=START + 60)) == (2, 1)


def test_files_of_a_worktree_also_of_a_removed_one_are_those_of_the_repository(shop, home):
    git(shop, "worktree", "add", "-q", str(home / "tree"), "-b", "tree")
    git(shop, "worktree", "add", "-q", str(shop / ".worktrees/in"), "-b", "in")
    commit(shop, START + 200, "a.py")
    one, other = edits(home / "tree/a.py", home / "tree/b.py"), edits(shop / ".worktrees/in/a.py")

    assert (drift(shop, one), drift(shop, other)) == ((2, 1), (1, 1))
    assert drift(home / "tree", one) == (2, 0)  # that branch has not changed

    (home / "tree").rename(home / "gone")

    assert drift(shop, one) == (2, 1)


def test_files_outside_do_not_count(shop, home):
    commit(shop, START + 200, "a.py")
    outside = (home / "a.py", "/etc/passwd", f"{shop}-other/a.py", f"{shop}/../a.py", shop, "a.py", "")

    assert drift(shop, edits(*outside)) is None
    assert drift(shop, edits(*outside, shop / "a.py")) == (1, 1)


@pytest.mark.parametrize("name", thorough_except_first(["-n1", "--output=stolen", "--", "*.py", ":(glob)**", ":!a.py", "with space", 'quo"te', "--stdin", "^HEAD", "ä ö",
     "HEAD", "a\\b", "#x", "$(touch stolen)"]))  # fmt: skip
def test_a_hostile_path_is_only_a_name(shop, name):
    assert drift(shop, edits(shop / name)) == (1, 0)

    commit(shop, START + 200, name)
    commit(shop, START + 300, "a.py")

    assert drift(shop, edits(shop / name)) == (1, 1)
    assert drift(shop, edits(shop / name, at=START + 250)) == (1, 0)
    assert not list(shop.rglob("stolen"))


@pytest.mark.parametrize("path", ["/shop/a\nb.py", "/shop/a\nHEAD~1\n--all", "/shop/\x01"])
def test_a_path_of_several_lines_is_not_asked_about(shop, path):
    processes = Counting()

    assert drifts(Repository.open_to_look_back(shop, processes), {0: edits(f"{shop.parent}{path}")}) == {}
    assert processes.logs == []


def test_where_the_repository_is_may_have_several_lines(home):
    folder = home / "a\nb" / "shop"
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, START, "a.py", "b.py")
    commit(folder, START + 200, "a.py")

    assert drift(folder, edits(folder / "a.py", folder / "b.py", folder / "c\nd.py")) == (2, 1)


def test_a_link_in_a_path_is_not_followed(shop, home):
    (home / "else").mkdir()
    (shop / "link").symlink_to(home / "else")
    git(shop, "add", "link")
    git(shop, "commit", "-q", "-m", "Link", at=START + 200)

    assert drift(shop, edits(shop / "link/a.py")) == (1, 0)


def test_git_is_asked_once_for_all_sessions_and_not_where_none_has_edits(shop):
    commit(shop, START + 200, "a.py")
    processes = Counting()
    repository = Repository.open_to_look_back(shop, processes)

    found = drifts(
        repository, {1: edits(shop / "a.py"), 2: edits(shop / "b.py"), 3: edits(shop / "a.py", at=START + 300)}
    )

    assert {key: one.changed for key, one in found.items()} == {1: 1, 2: 0, 3: 0}
    assert len(processes.logs) == 1
    assert drifts(repository, {}) == drifts(repository, {1: Edits(), 2: edits("/elsewhere")}) == {}
    assert len(processes.logs) == 1


@pytest.mark.thorough
def test_of_thousands_of_files_all_are_counted(shop):
    names = [f"many/{number}.py" for number in range(2000)]
    commit(shop, START + 200, *names)

    assert drift(shop, edits(*(shop / name for name in names), shop / "b.py")) == (2001, 2000)


def test_where_a_shallow_clone_ends_after_the_edit_it_is_not_known(shop, home):
    commit(shop, START + 200, "a.py")
    commit(shop, START + 300, "b.py")
    git(home, "clone", "-q", "--depth", "1", f"file://{shop}", "shallow")
    clone = home / "shallow"

    assert drift(clone, edits(clone / "a.py")) is None
    assert drift(clone, edits(clone / "a.py", at=START + 350)) == (1, 0)

    commit(clone, START + 400, "a.py")

    assert drift(clone, edits(clone / "a.py", at=START + 350)) == (1, 1)


def test_before_the_first_commit_nothing_is_known(home):
    folder = home / "empty"
    folder.mkdir()
    git(folder, "init", "-q")

    assert drift(folder, edits(folder / "a.py")) is None


@pytest.mark.parametrize("until", ["", "yesterday", "9999-99-99"])
def test_without_a_time_nothing_is_known(shop, until):
    assert drift(shop, Edits((str(shop / "a.py"),), until)) is None


def test_a_time_before_all_time_counts_everything(shop):
    assert drift(shop, Edits((str(shop / "a.py"),), "1970-01-01T00:00:00Z")) == (1, 1)


def test_no_setting_of_the_repository_changes_the_answer(shop):
    settings = ("log.follow=true", "log.showRoot=false", "diff.relative=true", "diff.renames=copies", "color.ui=always",
                "log.diffMerges=off", "diff.noprefix=true", "log.date=raw", "core.quotePath=true")  # fmt: skip
    for setting in settings:
        git(shop, "config", *setting.split("="))
    git(shop, "mv", "a.py", "z.py")
    git(shop, "commit", "-q", "-m", "Away", at=START + 200)

    assert drift(shop / "sub", edits(shop / "a.py")) == (1, 1)


def test_git_that_does_not_answer_in_time_is_said(shop):
    class Late(Processes):
        def run(self, argv, **how):
            if "log" in argv:
                raise ProgramFailed(f"git did not answer within {how['timeout']:g} seconds")
            return super().run(argv, **how)

    with pytest.raises(ProgramFailed, match="within 3 seconds"):
        drifts(Repository.open_to_look_back(shop, Late()), {0: edits(shop / "a.py")})
