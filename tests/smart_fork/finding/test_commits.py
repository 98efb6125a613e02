"""Tests from a session to its commits: with real git, and sessions as their agents write them."""

from __future__ import annotations

import json
import re

import pytest

from smart_fork import read
from smart_fork.finding import session_commits
from smart_fork.forking.lineage import lineage
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.finding.test_authorship import BODY, FIRST, LATER, SLOWLY, ask, commit, git, wrote
from tests.smart_fork.world import Did
from tests.support.cases import thorough_except_first

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
OTHER = BODY.replace("upload", "download").replace("path", "target").replace("attempt", "number")


def made(world, shop, session: str):
    """Index a session and return the commits that came of it."""
    if not (shop / "known.py").exists():
        (shop / "known.py").write_text("x = 1\n")
    git(shop, "add", "--intent-to-add", "known.py")
    ask(world, shop, files=["known.py"])
    return read(session).commits


def names(told) -> list[str]:
    return [one.commit for one in told.commits] if told else []


def test_a_session_leads_to_its_commit_and_to_its_lines_that_are_there(world, shop):
    session = wrote(world, shop)
    name = commit(shop, "upload.py", BODY + "print('by hand, and nothing else')\n", "Retry")

    told = made(world, shop, session)

    assert [one.as_json() for one in told.commits] == [
        {"commit": name, "date": "2026-05-28T20:26:40Z", "subject": "Retry", "lines": 7, "of": 8}
    ]
    assert (told.count, told.lines_today, told.places) == (1, 7, ("upload.py:1-7",))


@pytest.mark.parametrize(
    "how", thorough_except_first(["nothing is committed", "another file by hand", "before the session", "by a bot"])
)
def test_a_session_without_a_commit_has_none(world, shop, how):
    if how == "before the session":
        commit(shop, "upload.py", BODY, at=1_700_000_000)
    session = wrote(world, shop)
    if how == "another file by hand":
        commit(shop, "other.py", BODY)
    if how == "by a bot":
        commit(shop, "upload.py", BODY, author="renovate[bot] <29139614+renovate[bot]@users.noreply.github.com>")

    assert made(world, shop, session) is None


def test_lines_that_a_person_wrote_into_its_file_are_no_commit_of_it(world, shop):
    session = wrote(world, shop)
    name = commit(shop, "upload.py", BODY)
    text = BODY + "\n\ndef by_hand(argument):\n    return argument + 1\n"
    commit(shop, "upload.py", text, at=LATER + 100)

    assert names(made(world, shop, session)) == [name]


@pytest.mark.thorough
def test_lines_that_were_changed_since_are_not_there_any_more(world, shop):
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY)
    commit(shop, "upload.py", BODY.replace(FIRST, SLOWLY), at=LATER + 100)

    told = made(world, shop, session)

    assert (told.lines_today, told.places) == (6, ("upload.py:2-7",))


@pytest.mark.thorough
def test_a_commit_that_only_moves_its_lines_or_writes_them_back_is_another_ones(world, shop):
    session = wrote(world, shop)
    name = commit(shop, "upload.py", BODY)
    commit(shop, "upload.py", "".join(f"by_hand({number})\n" for number in range(30)) + BODY, "Above", at=LATER + 10)
    commit(shop, "upload.py", "print('nothing')\n", "Away", at=LATER + 20)
    commit(shop, "upload.py", BODY, "And back", at=LATER + 30)

    assert names(made(world, shop, session)) == [name]


@pytest.mark.thorough
def test_a_cherry_pick_is_its_commit_too(world, shop):
    session = wrote(world, shop)
    git(shop, "checkout", "-q", "-b", "topic")
    name = commit(shop, "upload.py", BODY)
    git(shop, "checkout", "-q", "main")
    git(shop, "cherry-pick", "topic", at=LATER + 50)
    picked = git(shop, "rev-parse", "HEAD").strip()

    assert names(made(world, shop, session)) == [picked, name]


@pytest.mark.thorough
def test_lines_are_followed_through_a_rename_into_another_folder(world, shop):
    session = wrote(world, shop)
    name = commit(shop, "upload.py", BODY)
    (shop / "src").mkdir()
    git(shop, "mv", "upload.py", "src/sender.py")
    git(shop, "commit", "-q", "-m", "Rename", at=LATER + 50)

    told = made(world, shop, session)

    assert names(told) == [name]
    assert told.places == ("src/sender.py:1-7",)


@pytest.mark.thorough
def test_a_file_that_is_gone_has_no_lines_today(world, shop):
    session = wrote(world, shop)
    name = commit(shop, "upload.py", BODY)
    git(shop, "rm", "-q", "upload.py")
    git(shop, "commit", "-q", "-m", "Remove", at=LATER + 50)

    told = made(world, shop, session)

    assert (names(told), told.lines_today, told.places) == ([name], 0, ())


def test_a_squash_is_the_commit_of_both_sessions(world, shop):
    first, second = wrote(world, shop), wrote(world, shop, text=OTHER)
    git(shop, "checkout", "-q", "-b", "topic")
    commit(shop, "upload.py", BODY)
    commit(shop, "upload.py", BODY + "\n\n" + OTHER, at=LATER + 10)
    git(shop, "checkout", "-q", "main")
    git(shop, "merge", "-q", "--squash", "topic")
    git(shop, "commit", "-q", "-m", "Both", at=LATER + 100)
    git(shop, "branch", "-q", "-D", "topic")
    squash = git(shop, "rev-parse", "HEAD").strip()

    for session in (first, second):
        told = made(world, shop, session)
        assert [(one.commit, one.lines, one.of) for one in told.commits] == [(squash, 7, 14)]
        assert told.lines_today == 7


@pytest.mark.thorough
def test_after_a_rebase_the_new_commit_is_its_commit(world, shop):
    session = wrote(world, shop)
    git(shop, "checkout", "-q", "-b", "topic")
    old = commit(shop, "upload.py", BODY)
    git(shop, "checkout", "-q", "main")
    commit(shop, "other.py", "print('by hand')\n", at=LATER + 50)
    git(shop, "rebase", "-q", "main", "topic", at=LATER + 100)
    new = git(shop, "rev-parse", "topic").strip()

    assert new != old
    assert names(made(world, shop, session)) == [new]


def test_a_commit_on_another_branch_is_told_and_none_of_its_lines_is_here(world, shop):
    session = wrote(world, shop)
    git(shop, "checkout", "-q", "-b", "topic")
    name = commit(shop, "upload.py", BODY)
    git(shop, "checkout", "-q", "main")

    told = made(world, shop, session)

    assert (names(told), told.lines_today) == ([name], 0)


def test_a_commit_that_names_the_session_is_its_commit_whatever_wrote_it(world, shop):
    session = world.worked("claude", shop, "> format all of it", Did("Bash", {"command": "ruff format"}), "Done.")
    name = commit(shop, "upload.py", BODY, f"Format\n\nClaude-Session: {session}")
    commit(shop, "upload.py", BODY + "print(1)\n", f"Not a trailer: {session}", at=LATER + 10)

    told = made(world, shop, session)

    assert [(one.commit, one.lines, one.of) for one in told.commits] == [(name, 0, 7)]


def test_a_fork_has_its_own_commit_and_its_parent_has_the_older_one(world, shop):
    parent = wrote(world, shop)
    first = commit(shop, "upload.py", BODY)
    edit = {"file_path": str(shop / "upload.py"), "old_string": FIRST, "new_string": SLOWLY}
    fork = world.worked("claude", shop, "> seven times, and slowly", Did("Edit", edit), "Done.", of=parent)
    second = commit(shop, "upload.py", BODY.replace(FIRST, SLOWLY), at=LATER + 10)
    made(world, shop, parent)

    told = {one.session_id: names(one.commits) for one in lineage(fork).sessions}

    assert told == {parent: [first], fork: [second]}


@pytest.mark.thorough
def test_a_session_of_a_worktree_that_is_gone_has_its_commits(world, shop):
    git(shop, "worktree", "add", "-q", "-b", "topic", ".worktrees/topic")
    session = wrote(world, shop / ".worktrees/topic")
    name = commit(shop / ".worktrees/topic", "upload.py", BODY)
    made(world, shop, session)
    git(shop, "worktree", "remove", "--force", ".worktrees/topic")
    git(shop, "merge", "-q", "topic")

    (one,) = lineage(session).sessions

    assert (names(one.commits), one.commits.places) == ([name], ("upload.py:1-7",))


@pytest.mark.thorough
def test_what_was_not_looked_at_is_said(world, shop, monkeypatch):
    session = wrote(world, shop)
    name = commit(shop, "upload.py", BODY)
    commit(shop, "upload.py", BODY + "print(1)\n", at=LATER + 10)
    commit(shop, "upload.py", BODY + "print(2)\n", at=LATER + 20)
    monkeypatch.setattr(session_commits, "MAX_COMMITS", 1)
    monkeypatch.setattr(session_commits, "MAX_FILES", 0)

    told = made(world, shop, session)

    assert names(told) == [name]
    assert told.notice == "2 later commits were not looked at; 1 files were not looked at"


def test_git_that_takes_too_long_is_said(world, shop, monkeypatch):
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY)
    made(world, shop, session)
    monkeypatch.setattr(session_commits, "FIND_SECONDS", 0.0)

    told = read(session).commits

    assert (told.count, told.notice[:24]) == (0, "Its commits are not know")


def test_odd_names_and_subjects_are_only_text(world, shop):
    name = "sub/ä'\"$(x) -f.py"
    session = wrote(world, shop, name)
    commit(shop, name, BODY, f"\x1b[31mred {SECRET}")

    told = made(world, shop, session)

    assert told.places == (f"{name}:1-7",)
    assert told.commits[0].subject.startswith("[31mred")
    assert SECRET not in told.commits[0].subject


@pytest.mark.thorough
def test_a_branch_of_checkpoints_has_no_commits_of_work(world, shop):
    session = wrote(world, shop)
    name = commit(shop, "upload.py", BODY)
    git(shop, "branch", "entire/checkpoints/v1", name)
    git(shop, "checkout", "-q", "entire/checkpoints/v1")
    commit(shop, "metadata.json", "{}\n", f"Checkpoint: 5f3390ed3fa8\n\nEntire-Session: {session}")
    git(shop, "checkout", "-q", "main")

    assert [name] == names(made(world, shop, session))


def test_commits_are_told_with_the_first_message_alone(world, shop):
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY)

    assert made(world, shop, session) is not None
    assert read(session, at=0).commits is None


def test_without_an_index_or_a_repository_nothing_is_told(world, shop, tmp_path):
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY)

    assert read(session).commits is None

    elsewhere = world.worked("claude", tmp_path, "> hello there", Did("Write", {"file_path": "a", "content": BODY}))
    made(world, shop, session)
    assert read(elsewhere).commits is None


@pytest.mark.slow
def test_the_commands_say_it(world, shop, run):  # noqa: F811
    session = wrote(world, shop)
    name = commit(shop, "upload.py", BODY, "Retry")
    made(world, shop, session)

    shown = run("show", session[:8]).out

    assert re.search(rf"\nCommits: 1\n\n- 2026-05-2[89] {name[:8]} Retry \(7 of 7 lines\)\n", shown)  # on its clock
    assert "\nLines of these in HEAD now: 7\n\n- upload.py: 1-7\n" in shown
    assert json.loads(run("show", session[:8], "--json").out)["commits"]["lines_today"] == 7
    assert f"commits: {name[:8]}; lines of these in HEAD now: 7" in run("lineage", session[:8]).out
    (one,) = json.loads(run("lineage", session[:8], "--json").out)["sessions"]
    assert [commit["commit"] for commit in one["commits"]["commits"]] == [name]
