"""Tests that a session is found by the messages of its commits: with real git and real index runs."""

from __future__ import annotations

import re

import pytest

from indexer.safe_files import index_db
from smart_fork.finding import session_commits
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.finding.test_authorship import BODY, LATER, commit, git, wrote
from tests.smart_fork.world import Did
from tests.support.cases import thorough_except_first

SAID = "Make transfers idempotent\n\nThe ledger skips duplicates."
SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


def found(world, shop, intent: str = "idempotent ledger duplicates") -> list[str]:
    """Return the sessions that are found by their own commits."""
    hits = world.find(intent, shop, explain=True)["results"]
    return [hit["session_id"] for hit in hits if hit["explain"]["points"]["commits"] > 0]


def kept() -> bytes:
    """Return all bytes of the index."""
    return b"".join(path.read_bytes() for path in index_db().parent.glob(f"{index_db().name}*"))


@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
def test_a_session_is_found_by_the_message_of_its_commit(world, shop, run, agent):  # noqa: F811
    session = wrote(world, shop, agent=agent)
    world.worked("claude", shop, "> write the changelog of the week", "Done.")
    commit(shop, "upload.py", BODY, SAID)
    run("index", "run")

    assert [session] == found(world, shop)


def test_a_commit_that_names_its_session_is_found_though_it_wrote_no_line(world, shop, run):  # noqa: F811
    session = world.worked("claude", shop, "> format all of it", Did("Bash", {"command": "ruff format"}), "Done.")
    commit(shop, "upload.py", BODY, f"{SAID}\n\nClaude-Session: {session}")
    run("index", "run")

    assert [session] == found(world, shop)
    assert [] == found(world, shop, f"claude-session {session[:8]}")


@pytest.mark.parametrize("how", ["by hand", "mostly by hand", "before the session"])
def test_a_commit_of_others_says_nothing_about_a_session(world, shop, run, how):  # noqa: F811
    if how == "before the session":
        commit(shop, "upload.py", BODY, SAID, at=1_700_000_000)
    wrote(world, shop)
    if how != "before the session":
        by_hand = "".join(f"print('line {number} of another hand')\n" for number in range(40))
        commit(shop, "upload.py", by_hand + (BODY if how == "mostly by hand" else ""), SAID)
    run("index", "run")

    assert [] == found(world, shop)


def test_each_commit_is_looked_at_once_and_new_ones_are_added(world, shop, run, monkeypatch):  # noqa: F811
    session, looked_at, real = wrote(world, shop), list[str](), session_commits.committed
    commit(shop, "upload.py", BODY, SAID)
    monkeypatch.setattr(
        session_commits, "committed", lambda there, names: (looked_at.extend(names), real(there, names))[1]
    )
    for _ in range(2):
        run("index", "run")
    second = commit(shop, "other.py", "print('by hand')\n", "Other", at=LATER + 10)
    run("index", "run")

    assert sorted(git(shop, "rev-list", "HEAD").split()) == sorted(looked_at)
    assert second == looked_at[-1]
    assert [session] == found(world, shop)


def test_a_session_that_is_read_after_its_commit_has_it(world, shop, run):  # noqa: F811
    world.worked("claude", shop, "> write the changelog of the week", "Done.")
    commit(shop, "upload.py", BODY, SAID)
    run("index", "run")
    session = wrote(world, shop)
    run("index", "run")

    assert [session] == found(world, shop)


def test_after_a_squash_on_a_fetched_branch_both_messages_are_known(world, shop, run):  # noqa: F811
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY, "Wip")
    run("index", "run")
    git(shop, "checkout", "-q", "--orphan", "squashed")
    git(shop, "commit", "-q", "-m", SAID, at=LATER - 10)
    git(shop, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(shop, "checkout", "-q", "main")
    run("index", "run")

    assert [session] == found(world, shop)


def test_a_secret_in_a_message_is_in_no_byte_of_the_index(world, shop, run):  # noqa: F811
    wrote(world, shop)
    commit(shop, "upload.py", BODY, f"{SAID}\n\ntoken {SECRET}")
    run("index", "run")

    assert b"ledger" in kept()
    assert SECRET.encode() not in kept()


@pytest.mark.parametrize(
    "message",
    thorough_except_first(
        [
            '\x1b[31m"OR* NEAR(idempotent ledger duplicates',
            "idempotent ledger duplicates " * 9000,
            "冪等 idempotent ledger duplicates",
        ]
    ),
)
def test_an_odd_message_is_only_text(world, shop, run, message):  # noqa: F811
    session = wrote(world, shop)
    (shop / "upload.py").write_text(BODY)
    git(shop, "add", "upload.py")
    git(shop, "commit", "-q", "-F", "-", given=message)
    run("index", "run")

    assert [session] == found(world, shop)


def test_a_cut_session_loses_the_messages_of_its_commits(world, shop, run):  # noqa: F811
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY, SAID)
    run("index", "run")
    assert b"ledger" in kept()
    assert run("excise", "cut", "3", session, "--yes", "--force").code == 0
    for _ in range(2):
        run("index", "run")

    assert b"ledger" not in kept()
    assert [] == found(world, shop)


def test_a_forgotten_session_leaves_no_message(world, shop, run):  # noqa: F811
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY, SAID)
    run("index", "run")
    assert run("forget", session, "--yes").code == 0

    assert re.search(b"ledger|idempotent", kept()) is None


def test_git_that_fails_keeps_no_index_run_from_ending(world, shop, run, monkeypatch):  # noqa: F811
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY, SAID)
    with monkeypatch.context() as patched:
        patched.setattr(session_commits, "FIND_SECONDS", 0.0)
        assert run("index", "run").code == 0
        assert [] == found(world, shop)
    run("index", "run")

    assert [session] == found(world, shop)
