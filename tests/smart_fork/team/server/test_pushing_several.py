"""Pushes of several sessions, or of all of a project: one preview, one question, and failures that stop no others."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from smart_fork.team.client import Client
from tests.smart_fork.team.server.test_killed_clients import shared_by
from tests.smart_fork.team.server.test_two_people import ANSWER, MORE, MORE_ANSWER, PROMPT, go_on, session_of


@pytest.fixture
def four(alice):
    """Two sessions of two agents that can be pushed, one without an answer, and one of another project."""
    elsewhere = alice.home / "private"
    elsewhere.mkdir()
    return (
        session_of(alice, "claude", PROMPT, ANSWER),
        session_of(alice, "codex", MORE, MORE_ANSWER),
        session_of(alice, "claude", "nothing was answered"),
        alice.world.claude(elsewhere, PROMPT, ANSWER),
    )


def typed(monkeypatch, *answers):
    """Answer the questions at a terminal, and return them."""
    asked, left = [], iter(answers)

    def confirm(question, **_):
        asked.append(question)
        return next(left)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("smart_fork.team.commands.team_group.sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", confirm)
    return asked


def test_several_ids_are_pushed_and_one_that_cannot_be_stops_no_other(alice, team, four):
    done = alice.do("team", "push", four[2], four[0], four[3], four[1], "--yes", "--json")

    told = json.loads(done.out)
    assert (1, 2, [True, True]) == (done.code, told["count"], [one["created"] for one in told["pushes"]])
    assert [four[2], four[3]] == [one["session"] for one in told["failed"]]
    assert ["nothing_to_push", "fork_refused"] == [one["code"] for one in told["failed"]]
    assert all(one["error"] and one["hint"] for one in told["failed"])
    assert 2 == len(shared_by(team, "alice"))


def test_all_are_those_of_this_project_that_have_something_to_send(alice, team, four):
    first = alice.team("push", "--all", "--yes")
    again = alice.team("push", "--all", "--yes")

    assert (2, [], ["nothing_to_push"]) == (first["count"], first["failed"], [one["code"] for one in first["skipped"]])
    assert (0, []) == (again["count"], again["failed"])
    assert ["nothing_to_push", "up_to_date", "up_to_date"] == sorted(one["code"] for one in again["skipped"])
    assert 2 == len(shared_by(team, "alice"))


def test_of_all_the_sessions_of_one_agent_alone(alice, four):
    assert ["codex"] == [one["agent"] for one in alice.team("push", "--all", "--codex", "--yes")["pushes"]]


def test_what_all_would_send_is_shown_and_nothing_is_sent(alice, team, four):
    shown = alice.do("team", "push", "--all", "--dry-run")
    told = alice.team("push", "--all", "--dry-run")

    assert (0, True) == (shown.code, shown.out.startswith(f"2 sessions to {team.key} on http://"))
    assert all(text in shown.out for text in (PROMPT, MORE, "Claude Code", "Codex", "Skipped: 1 session"))
    assert (True, 2) == (told["dry_run"], told["count"])
    assert set(four[:2]) == {one["session"] for one in told["sessions"]}
    assert [] == shared_by(team, "alice")


def test_a_person_sees_the_list_and_is_asked_once(alice, team, four, monkeypatch):
    asked = typed(monkeypatch, True)

    done = alice.do("team", "push", "--all")

    assert (0, ["Send these 2?"]) == (done.code, asked), done.err
    assert PROMPT in done.err
    assert 2 == len(shared_by(team, "alice"))


def test_a_person_who_says_no_has_sent_nothing(alice, team, four, monkeypatch):
    typed(monkeypatch, False)

    done = alice.do("team", "push", *four[:2])

    assert (130, True) == (done.code, "Nothing was sent." in done.err)
    assert [] == shared_by(team, "alice")


@pytest.mark.thorough
def test_that_a_private_one_becomes_public_is_asked_for_too(alice, four, monkeypatch):
    alice.team("push", four[0], "--yes")
    asked = typed(monkeypatch, True, True)

    done = alice.do("team", "push", four[0], four[1], "--public")

    assert (0, 2) == (done.code, len(asked)), done.err
    assert "Publish?" in asked[1]


def test_without_a_terminal_several_need_yes(alice, team, four):
    refused = alice.do("team", "push", "--all")

    assert (2, True) == (refused.code, "--yes" in refused.err)
    assert [] == shared_by(team, "alice")


@pytest.mark.thorough
def test_what_was_said_after_the_list_was_shown_is_not_sent(alice, team, four, monkeypatch):
    pushed = alice.team("push", four[0], "--yes")
    go_on(alice, pushed["files"][0], "claude", MORE, MORE_ANSWER)
    typed(monkeypatch, True)

    def confirm(*_, **__):
        go_on(alice, pushed["files"][0], "claude", "a secret", "Noted.")
        return True

    monkeypatch.setattr("typer.confirm", confirm)
    done = alice.do("team", "push", "--all")

    assert (1, True) == (done.code, "It continued after the preview." in done.err)
    assert {2} == {records for *_, records in shared_by(team, "alice")}


@pytest.mark.thorough
def test_forks_are_pushed_behind_their_parents_and_are_branches_of_them(alice, team):
    parent = session_of(alice, "claude", PROMPT, ANSWER)
    with alice.here():
        alice.world.fork_claude(parent, alice.repository, MORE, MORE_ANSWER)

    done = alice.team("push", "--all", "--yes")

    first, second = done["pushes"]
    assert (None, first["session_id"], 2) == (first["parent_id"], second["parent_id"], second["pushed_records"])


def test_a_copy_of_a_teammate_s_session_that_says_nothing_new_is_not_shared_by_all(alice, bob, team):
    hers = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")
    bob.team("fork", hers["session_id"], "--local")

    done = bob.team("push", "--all", "--yes")

    assert (0, ["up_to_date"]) == (done["count"], [one["code"] for one in done["skipped"]])
    assert [] == shared_by(team, "bob")


@pytest.mark.parametrize("option", ["--title", "--summary"])
def test_what_describes_one_session_is_refused_for_several(alice, four, option):
    refused = alice.do("team", "push", *four[:2], option, "one name", "--yes")

    assert (2, True) == (refused.code, f"{option} is for one session" in refused.err)


def test_all_and_an_id_do_not_go_together(alice, four):
    assert 2 == alice.do("team", "push", four[0], "--all", "--yes").code


def test_a_server_that_goes_away_is_waited_for_once(alice, four, monkeypatch):
    from smart_fork.errors import ServerUnavailable

    asked = []

    def push(self, *_):
        asked.append(True)
        raise ServerUnavailable("The server does not answer")

    alice.team("push", four[0], "--yes")
    monkeypatch.setattr(Client, "push", push)
    more = [session_of(alice, "claude", f"{PROMPT} {number}", ANSWER) for number in range(3)]
    done = alice.do("team", "push", *more, "--yes", "--json")

    assert (1, 3) == (done.code, len(json.loads(done.out)["failed"]))
    assert 1 == len(asked)


@pytest.mark.thorough
def test_a_fork_that_is_resumed_is_one_json_document_with_its_worker(alice, bob, monkeypatch):
    started = []

    def start(spec):
        started.append(spec)
        return SimpleNamespace(as_json=lambda: {"worker_id": "claude-1"})

    monkeypatch.setattr("smart_fork.cli.start_agents.start", start)
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--public", "--yes")
    forked = bob.team("fork", pushed["session_id"], "--resume")

    assert ("fork", "claude-1") == (forked["verb"], forked["worker"]["worker_id"])
    assert [("resume", "claude")] == [(spec.kind, spec.agent) for spec in started]
