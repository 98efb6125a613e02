"""The first use of a team, with unusual input."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.smart_fork.team.server.test_two_people import (
    ANSWER,
    MORE,
    MORE_ANSWER,
    PROMPT,
    assert_refused,
    go_on,
    session_of,
)
from tests.smart_fork.world import git
from tests.support.cases import parametrize_subtests, thorough_except_first


def test_what_is_private_is_published_by_nobody_who_was_not_asked_though_nothing_is_new(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")

    refused = alice.do("team", "push", "--public")

    assert (2, True) == (refused.code, "Cannot ask: no terminal" in refused.err)
    assert "private" == alice.team("show", pushed["session_id"])["session"]["visibility"]
    assert "public" == alice.team("push", "--public", "--yes")["visibility"]


@pytest.mark.thorough
def test_a_branch_that_is_not_pushed_yet_is_made_on_the_server_by_nobody_who_was_not_asked(alice):
    alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    alice.team("branch", "--local", "--public", "--alias", "draft")

    refused = alice.do("team", "push", "draft")

    assert (2, True) == (refused.code, "A new session of Claude Code" in refused.err)
    assert 1 == alice.team("list")["count"]


def test_who_will_be_able_to_read_it_is_asked_of_the_server(alice):
    """Another machine, or `team privacy`, may have changed the visibility."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    alice.team("privacy", pushed["session_id"], "--public", "--yes")
    go_on(alice, pushed["files"][0], "claude", MORE, MORE_ANSWER)

    seen = alice.team("push", "--dry-run")

    assert ("public", "public") == (seen["before"], seen["visibility"])
    assert "public" == alice.team("status")["aliases"][0]["visibility"]


@pytest.mark.thorough
def test_what_goes_on_from_a_public_session_is_private_and_said_to_be(alice):
    parent = session_of(alice, "claude", PROMPT, ANSWER)
    alice.team("push", parent, "--public", "--yes")
    with alice.here():
        fork = alice.world.fork_claude(parent, alice.repository, MORE, MORE_ANSWER)

    seen = alice.team("push", fork, "--dry-run")

    assert ("private", True) == (seen["visibility"], seen["created"])


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--title", "x" * 201, "--title has 200 characters at most: this is 201"),
        ("--summary", "x" * 2_001, "--summary has 2000 characters at most: this is 2001"),
        ("--tags", ",".join(map(str, range(51))), "--tags has 51 of them: 50 at most"),
        ("--tags", "a," + "x" * 201, "Each of --tags has 200 characters at most: this is 201"),
    ],
)
def test_what_is_said_of_a_session_at_too_great_length_is_a_wrong_use(alice, option, value, said):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")["session_id"]

    assert_refused(alice, 2, said, "push", option, value)
    assert_refused(alice, 2, said, "branch", pushed, option, value)


def test_tags_are_trimmed_and_each_is_there_once(alice):
    """C-025."""
    alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--tags", " a,, b c ,a,\x1b[31mred")

    (one,) = alice.team("list")["sessions"]
    assert ["a", "b c", "[31mred"] == one["tags"]


@pytest.mark.thorough
def test_what_was_changed_here_and_is_pushed_by_force_does_not_keep_the_beginning_of_another_id_as_its_name(alice):
    first = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    log = Path(first["files"][0])
    log.write_text(log.read_text().replace("five times", "six times"))

    second = alice.team("push", "--yes", "--force")

    assert {second["alias"]} == set(alice.tracking()["aliases"])
    assert second["session_id"].startswith(second["alias"])
    assert first["session_id"] == alice.team("show", first["alias"])["session"]["id"]


@pytest.mark.thorough
def test_what_is_written_for_another_clone_of_the_project_is_tracked_and_pushed_there(alice, second_clone):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")

    pulled = alice.team("pull", pushed["session_id"], "--into", str(second_clone), "--yes")
    go_on(alice, pulled["files"][0], "claude", MORE, MORE_ANSWER)
    more = alice.team("push", "--yes", "--project", str(second_clone))

    assert [] == pulled["warnings"]
    assert (pushed["session_id"], 2) == (more["session_id"], more["pushed_records"])
    assert pushed["files"] == alice.tracking()["aliases"][pushed["alias"]]["files"]


@pytest.mark.parametrize("verb", thorough_except_first(["pull", "branch"]))
def test_what_is_written_for_outside_of_the_project_is_not_tracked_and_hinders_nothing_later(alice, verb):
    """C-020, C-074."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    outside = alice.home / "outside"
    outside.mkdir()

    assert 2 == alice.do("team", verb, pushed["session_id"], "--into", str(outside)).code
    done = alice.team(verb, pushed["session_id"], "--into", str(outside), "--yes")

    assert (None, True) == (done["alias"], any("outside this project" in one for one in done["warnings"]))
    assert str(outside) in done["resume_command"]
    assert pushed["files"] == alice.tracking()["aliases"][pushed["alias"]]["files"]
    assert alice.team("pull", pushed["session_id"])["up_to_date"]
    assert alice.team("push")["up_to_date"]


@pytest.fixture
def second_clone(alice, team):
    """A second clone of the project on Alice's machine."""
    folder = alice.home / "again"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "remote", "add", "origin", f"https://{team.key}.git")
    return folder


def test_what_has_no_answer_yet_is_not_pushed_and_it_is_said_why(alice):
    session = session_of(alice, "claude", PROMPT)

    assert_refused(alice, 1, f"Nothing to push: {session} has no answer and no tool result yet.", "push", session)


@pytest.mark.thorough
def test_what_her_own_agent_wrote_is_neither_cut_nor_said_to_be_when_it_is_withdrawn(alice, bob):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER, MORE, MORE_ANSWER), "--yes", "--public")
    his = bob.team("fork", pushed["session_id"])
    before = Path(pushed["files"][0]).read_bytes()

    done = alice.team("excise", "cut", "3-4", pushed["session_id"], "--yes")

    assert (2, []) == (done["cut"], done["changed"])
    assert before == Path(pushed["files"][0]).read_bytes()
    assert his["files"] == bob.team("sync")["changed"]


def test_messages_that_are_none_are_said_to_be_with_how_to_number_them(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")["session_id"]

    for messages in ("9", "x", "1-9", "5-"):
        refused = alice.do("team", "excise", "cut", messages, pushed, "--yes")
        assert (2, True) == (refused.code, "smart-fork team show" in refused.err), messages


def test_what_was_deleted_on_the_server_is_shared_again_as_it_is_told(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    alice.team("delete", pushed["session_id"], "--yes")

    refused = alice.do("team", "push", "--yes")
    again = alice.team("push", pushed["alias"], "--yes", "--force")

    assert (3, True) == (refused.code, f"smart-fork team push {pushed['alias']} --force" in refused.err)
    assert again["created"]
    assert pushed["session_id"] != again["session_id"]


def test_a_session_is_named_by_its_log_and_anything_else_is_said_to_be_none(alice):
    """C-026."""
    (alice.repository / "notes").write_text("words")
    claude = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    mismatch = "Platform mismatch: that is a session of Claude Code, not of Codex"

    assert_refused(alice, 2, "Can only specify one platform flag at a time", "push", "--claude", "--codex")
    assert_refused(alice, 1, "No Codex session found for current directory", "push", "--codex")
    for file in ("notes", "/etc/passwd"):
        refused = alice.do("team", "push", file)
        assert (2, True) == (refused.code, "Unsupported session file format." in refused.err)
    for named in (claude["alias"], claude["session_id"], claude["files"][0]):
        assert_refused(alice, 2, mismatch, "push", named, "--codex")
    alice.team("alias", "remove", claude["alias"])
    assert_refused(alice, 2, mismatch, "push", claude["files"][0], "--codex")
    words = alice.do("team", "push").err
    assert (
        "Must specify either a file path or a platform flag (--claude, --codex, --qwen, --opencode, --gemini, --copilot)"
        in words
    )


def test_a_clone_whose_name_is_not_utf_8_is_said_to_be_one(alice, team):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    odd = alice.home / os.fsdecode(b"b\xffd")
    odd.mkdir()
    git(odd, "init", "-q")
    git(odd, "remote", "add", "origin", f"https://{team.key}.git")
    alice.repository = odd

    refused = alice.do("team", "pull", pushed["session_id"])

    assert (2, True) == (refused.code, "is not UTF-8" in refused.err)
    assert 1 == alice.team("list")["count"]


@pytest.mark.parametrize("option", thorough_except_first(["--title", "--summary"]))
def test_what_is_said_of_a_shared_session_and_is_not_utf_8_is_refused_in_one_sentence(alice, option):
    log, odd = session_of(alice, "claude", PROMPT, ANSWER), os.fsdecode(b"a\xff")
    shared = alice.team("push", log, "--yes")["session_id"]

    for words in (("push", log, "--yes"), ("branch", shared)):
        assert_refused(alice, 2, f"{option[2:]} is not UTF-8, which the team server needs.", *words, option, odd)
    assert 1 == alice.team("list")["count"]


def test_an_invitation_that_is_not_utf_8_is_none(alice, address):
    refused = alice.do("team", "login", address, os.fsdecode(b"sfi_\xff"))

    assert (2, True) == (refused.code, "That is not an invitation." in refused.err)


def test_without_an_id_the_current_session_is_branched_and_where_none_is_it_is_said(alice):
    """C-008, C-011, C-045: a branch of a private session is private."""
    assert_refused(alice, 2, "Which session?", "branch")
    first = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")

    made = alice.team("branch")

    assert (first["session_id"], "private", made["alias"]) == (
        made["parent_id"], made["visibility"], alice.tracking()["current"]
    )  # fmt: skip


def test_what_is_made_on_the_server_alone_or_not_tracked_leaves_nothing_else(alice, bob):
    """C-028, C-031."""
    root = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")
    there = bob.team("fork", root["session_id"], "--no-pull", "--alias", "there")
    logs = list(bob.home.glob(".claude/**/*.jsonl"))
    before = bob.tracking()
    pulled = bob.team("pull", there["session_id"], "--no-track", "--force")

    assert (None, 0, root["session_id"]) == (root["parent_id"], root["base_count"], root["root_id"])
    assert ([], [], []) == (there["files"], logs, before["aliases"]["there"].get("files", []))
    assert (None, before) == (pulled["alias"], bob.tracking())
    assert Path(pulled["files"][0]).is_file()


@pytest.mark.thorough
def test_each_alias_has_a_base_of_its_own_and_is_pushed_on_its_own(alice):
    """C-042."""
    first = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    second = alice.team("branch", "--alias", "second")
    go_on(alice, second["files"][0], "claude", MORE, MORE_ANSWER)

    pushed = alice.team("push", "second", "--yes")

    tracked = alice.tracking()["aliases"]
    assert (second["session_id"], 2) == (pushed["session_id"], pushed["pushed_records"])
    assert (2, 4) == (tracked[first["alias"]]["baseCount"], tracked["second"]["baseCount"])
    assert alice.team("push", first["alias"])["up_to_date"]


@parametrize_subtests(
    "words",
    [
        ("push", "nothing-here"), ("pull", "0" * 12), ("branch", "0" * 12), ("fork", "0" * 12, "--at", "x"), ("show", "x"),
        ("log", "x"), ("diff", "x"), ("excise", "cut", "1", "x", "--yes"), ("privacy", "x"), ("delete", "x", "--yes"),
        ("audit", "--since", "never"), ("alias", "use", "x"), ("list", "--page", "?"), ("login", "http://example.org", "x"),
    ],
)  # fmt: skip
def test_an_error_is_json_alone_where_json_was_asked_for(alice, words):
    """C-029."""
    said = alice.do("team", *words, "--json")

    assert said.code in {1, 2, 3}
    assert said.json["error"]
    assert 1 == len(said.out.splitlines())
