"""Tests of the number of commits that a checkout is behind its upstream, as last fetched, with real git."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smart_fork.errors import ProgramFailed
from smart_fork.forking.changes_since import find_changes
from smart_fork.system.processes import Processes
from tests.smart_fork.forking.test_news import PROCESSES, START, _home_of_module, sh, shop, template, then, told  # noqa: F401 - fixtures


@pytest.fixture
def clone(home, shop):  # noqa: F811
    """Make a clone with newer, fetched commits in its upstream. The session ended after the clone's own commit."""
    sh(home, "git clone -q shop clone; cd clone; echo own >> x.py; git commit -qam Own", at=START)
    sh(shop, "for n in 1 2 3; do git commit -q --allow-empty -m $n; done")
    sh(home / "clone", "git fetch -q")
    return home / "clone"


def behind(clone: Path, **more: Any) -> tuple[int, str]:
    found = find_changes(clone, then(clone, "a.py", **more), PROCESSES)
    return (found.behind, found.upstream) if found else (0, "")


def test_a_checkout_that_is_behind_its_upstream_is_told_by_local_refs_alone(shop, clone):  # noqa: F811
    assert behind(clone) == (3, "origin/main")
    assert find_changes(clone, then(clone, "a.py"), PROCESSES, committed=True).behind == 3
    sh(shop, "git commit -q --allow-empty -m Four")
    assert behind(clone) == (3, "origin/main"), "nothing is fetched"
    sh(clone, "git switch -qc topic --track main; git reset -q --hard HEAD~1")
    assert behind(clone, branch=None) == (1, "main"), "another branch of the same repository"
    sh(clone, "git switch -q main; git reset -q --hard origin/main")
    assert find_changes(clone, then(clone, "a.py"), PROCESSES) is None, "it is not behind"


@pytest.mark.parametrize(
    "script",
    [
        "git switch -q --detach",
        "git branch -q --unset-upstream",
        "git update-ref -d refs/remotes/origin/main",
        "git remote remove origin",
        "git config branch.main.merge refs/heads/gone",
        "git config branch.main.remote https://example.org/shop.git",
        "git config branch.main.merge --output=hacked",
        "git checkout -q --orphan new",
    ],
)
def test_without_an_upstream_nothing_is_told_of_one(clone, script):
    sh(clone, script)

    assert behind(clone, branch=None) == (0, "")
    assert not (clone / "hacked").exists()


def test_an_upstream_of_any_name_is_told_as_it_is(shop, clone):  # noqa: F811
    name = "a'b$(touch${IFS}hacked)\u202e`x`"
    sh(shop, f'git branch "{name}"'.replace("$", "\\$").replace("`", "\\`"))
    sh(clone, f'git fetch -q; git branch -q -u "origin/{name}"'.replace("$", "\\$").replace("`", "\\`"))

    assert behind(clone) == (3, f"origin/{name}")
    assert not (clone / "hacked").exists()


def test_many_commits_are_counted_to_a_bound_and_a_git_that_takes_long_costs_the_count_alone(clone, monkeypatch):
    monkeypatch.setattr("smart_fork.forking.changes_since.MAX_COMMITS", 2)
    assert behind(clone) == (2, "origin/main")
    sh(clone, "echo more >> a.py; git commit -qam Two")

    class Slow(Processes):
        def run(self, command: Any, **more: Any) -> Any:
            if "HEAD..@{upstream}" in command:
                raise ProgramFailed("git took too long")
            return super().run(command, **more)

    found = find_changes(clone, then(clone, "a.py"), Slow())

    assert ({"a.py": "changed +1 -0"}, 0) == (told(found), found.behind)
