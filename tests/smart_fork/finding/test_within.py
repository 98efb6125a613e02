"""Tests of the exchanges of one session that answer a question, also for the calling session."""

from __future__ import annotations

import json

import pytest

from smart_fork.errors import NotFound, Usage
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.searches import opened

SAID = (
    "rename the logo", "It is renamed",
    "why does the upload lose its last packet", "The buffer is never flushed",
    "paint the chart in other colours", "It is painted",
)  # fmt: skip


def asked(world, shop, session: str, intent: str = "upload packet flushed", caller: str | None = None):
    request = FindRequest(intent, agent_type="all", session=session, limit=2)
    with opened(Engine(world.model), shop, caller=caller) as library:
        return library.within(request)


def test_a_session_finds_its_own_exchange(world, shop):
    session = world.claude(shop, *SAID)
    world.claude(shop, "why does the upload lose its last packet", "Nobody knows")

    found = asked(world, shop, "self", caller=session)

    assert (session, 3) == (found.session_id, found.total)
    best = found.exchanges[0]
    assert (2, 2, "why does the upload lose its last packet") == (best.exchange, best.message, best.asked)


def test_what_was_said_since_the_index_was_made_is_found(world, shop):
    session = world.claude(shop, *SAID[:2])
    world.find("anything", shop)
    log = world.log_of(session)
    world.write_claude(session, shop, world.claude_records(session, shop, *SAID))
    assert log.exists()

    assert 2 == asked(world, shop, session[:8]).exchanges[0].exchange


def test_the_commands_and_tools_say_it(world, shop, run):  # noqa: F811
    session = world.claude(shop, *SAID)
    world.find("anything", shop)

    shown = run("find", "upload packet", "--session", session[:8], "--project", str(shop))
    told = run("find", "upload packet", "--session", session[:8], "--project", str(shop), "--json")

    assert shown.out.startswith("exchange 2 message 2 why does the upload lose its last packet\n")
    assert f"smart-fork show {session[:8]} --at 2 " in shown.err
    assert session == json.loads(told.out)["session_id"]


def test_who_asks_must_be_known_and_be_there(world, shop):
    world.claude(shop, *SAID)

    with pytest.raises(Usage, match="which session asks"):
        asked(world, shop, "self")
    with pytest.raises(NotFound, match="no session"):
        asked(world, shop, "99999999")


def test_recall_here_finds_what_the_session_that_runs_it_said(world, shop, run, monkeypatch):  # noqa: F811
    session = world.claude(shop, *SAID)
    world.claude(shop, "why does the upload lose its last packet", "Nobody knows")
    world.find("anything", shop)

    unknown = run("recall", "--here", "upload packet", "--project", str(shop))
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", session)
    here = run("recall", "--here", "upload packet", "--project", str(shop), "--json")
    elsewhere = run("recall", SAID[2], "--project", str(shop), "--json")

    assert "it is not known which session asks" in unknown.err
    assert (session, 2) == ((told := json.loads(here.out))["session_id"], told["exchanges"][0]["exchange"])
    assert [session] != [hit["session_id"] for hit in json.loads(elsewhere.out)["results"]]
    assert session not in elsewhere.out
