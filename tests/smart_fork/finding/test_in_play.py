"""Tests of files in play (named by the caller, or changed in the working tree): sessions that edited them
come first.
"""

from __future__ import annotations

import pytest

from smart_fork.finding import project_index
from smart_fork.system.processes import Processes
from tests.smart_fork.world import Did, git
from tests.support.cases import thorough_except_first

ASK, DONE = "> add retry with backoff to the uploader", "the uploader retries now"
INTENT = "add retry with backoff to the uploader"
PATCH = "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-old\n+new\n"


def edit(path) -> Did:
    return Did("Edit", {"file_path": str(path)})


@pytest.fixture
def edited(world, shop) -> dict[str, str]:
    """Write two sessions with equal texts about different, committed files; return them by file."""
    (shop / "src").mkdir()
    for name in ("a.py", "b.py", "c.py"):
        (shop / "src" / name).write_text("old\n")
    git(shop, "add", ".")
    git(shop, "commit", "-q", "-m", "Files")
    return {
        name: world.worked("claude", shop, ASK, edit(shop / "src" / name), DONE) for name in ("a.py", "b.py")
    }  # fmt: skip


@pytest.fixture
def asked(monkeypatch) -> list:
    """Record the questions to git."""
    asked: list = []
    run = Processes.run
    monkeypatch.setattr(Processes, "run", lambda self, argv, **how: asked.append([*argv]) or run(self, argv, **how))
    return asked


def points(answer: dict) -> dict[str, float]:
    """Return the points for the files in play, by session."""
    return {hit["session_id"]: hit["explain"]["points"]["files"] for hit in answer["results"]}


@pytest.mark.parametrize("changed", thorough_except_first(["a.py", "b.py"]))
def test_a_changed_file_speaks_for_the_session_that_edited_it(world, shop, edited, changed):
    before = world.find(INTENT, shop, explain=True)
    (shop / "src" / changed).write_text("new\n")
    after = world.find(INTENT, shop, explain=True)

    assert {0} == set(points(before).values())
    assert edited[changed] == after["results"][0]["session_id"]
    assert [True, False] == [one > 0 for one in points(after).values()]
    assert after["results"][0]["score"] > before["results"][0]["score"]


def test_a_file_that_no_session_edited_changes_nothing(world, shop, edited):
    before = world.find(INTENT, shop, explain=True)
    (shop / "src/c.py").write_text("new\n")

    assert before == world.find(INTENT, shop, explain=True)


@pytest.mark.parametrize("given", [{"changes": PATCH}, {"lines": ["src/a.py:1"]}, {"files": ["src/a.py"]}])
def test_what_the_caller_gives_is_in_play_and_git_is_not_asked_what_is_changed(
    world, edited, asked, given, monkeypatch
):
    shop = world.home / "shop"
    (shop / "src/b.py").write_text("new\n")
    played = []
    of = project_index.with_files
    monkeypatch.setattr(
        "smart_fork.finding.session_library.with_files", lambda *how: played.append(of(*how)) or played[-1]
    )

    world.find(INTENT, shop, **given)

    assert [(("src/a.py",), True)] == [(one.in_play, one.given) for one in played]
    assert not [argv for argv in asked if "diff-index" in argv]


def test_git_is_asked_once_what_is_changed_within_a_limit_and_never_beyond_one_repository(world, shop, edited, asked):
    def asks(**how) -> int:
        asked.clear()
        world.find(INTENT, how.pop("folder", shop), **how)
        return len([argv for argv in asked if "diff-index" in argv])

    outside = world.home / "outside"
    outside.mkdir()
    world.worked("claude", outside, ASK, DONE)
    world.worked("claude", outside, ASK, DONE, DONE)

    assert [1, 0, 0] == [asks(), asks(all_projects=True), asks(folder=outside)]
    assert 1 > project_index.CHANGED_SECONDS


def test_without_an_answer_of_git_the_search_is_as_before(world, shop, edited, monkeypatch):
    before = world.find(INTENT, shop, explain=True)["results"]
    (shop / "src/a.py").write_text("new\n")
    monkeypatch.setattr("smart_fork.finding.git._CHANGED", ("no-such-command",))
    refused = world.find(INTENT, shop, explain=True)["results"]

    def late(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(project_index.Repository, "open", late)

    assert before == refused == world.find(INTENT, shop, explain=True)["results"]


def test_many_changed_files_are_none_in_play(world, shop, edited, monkeypatch):
    (shop / "src/a.py").write_text("new\n")
    monkeypatch.setattr(project_index, "MAX_CHANGED", 0)

    assert {0} == set(points(world.find(INTENT, shop, explain=True)).values())


def test_nothing_that_the_repository_configures_runs(world, shop, edited):
    """A repository can name a filter and a file watcher, which are programs."""
    ran = shop.parent / "ran"
    git(shop, "config", "filter.trap.clean", f"touch {ran}; cat")
    git(shop, "config", "core.fsmonitor", f"touch {ran}")
    (shop / ".git/info/attributes").write_text("* filter=trap\n")
    (shop / "src/a.py").write_text("new\n")

    answer = world.find(INTENT, shop, explain=True)

    assert edited["a.py"] == answer["results"][0]["session_id"]
    assert not ran.exists()


def test_a_hostile_name_is_only_looked_for(world, shop, edited):
    name = '" OR part:p1 NOT "\n--option $(touch x).py'
    (shop / name).write_text("old\n")
    git(shop, "add", ".")
    git(shop, "commit", "-q", "-m", "Odd")
    (shop / name).write_text("new\n")

    assert {0} == set(points(world.find(INTENT, shop, explain=True)).values())
