"""Tests of questions by an agent without a fitting session of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from indexer.log_changes import Report
from smart_fork.agents import AGENTS
from smart_fork.agents.request_fields import Options
from smart_fork.finding import index_refresh
from smart_fork.finding.answer import Unsearched
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.results import Forked
from smart_fork.forking.search_and_fork import find_in_all
from smart_fork.system.call_context import calling
from tests.smart_fork.answers import a_fork, a_hit, an_answer
from tests.smart_fork.mcp_client import answer
from tests.smart_fork.searches import opened
from tests.smart_fork.world import World

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"
OTHER = ("rename the changelog", "It is called HISTORY.md now")
ASKED = {"client": "codex-mcp-client", "intent": RETRY}
NOTICE = (
    "No session of Codex fits, so sessions of Claude Code were searched too: "
    "a fork of one of these starts Claude Code, not Codex"
)


@pytest.fixture(autouse=True)
def _in_the_project(shop, monkeypatch):
    monkeypatch.chdir(shop)


@pytest.mark.parametrize("tool", ["smart_fork", "find_sessions"])
@pytest.mark.parametrize("own", [(), OTHER], ids=["none of its own", "nothing that fits"])
def test_where_nothing_of_its_own_fits_the_other_agents_sessions_are_searched(world: World, shop, tool, own):
    if own:
        world.codex(shop, *own)
    knows = world.claude(shop, RETRY, DONE)

    found = answer(world, tool, **ASKED)

    assert knows == found["results"][0]["session_id"]
    assert (AGENTS.word_for(AGENTS.readable()), NOTICE) == (found["agent_type"], found["agents_notice"])


def test_where_its_own_fit_no_other_is_searched(world: World, shop):
    own = world.codex(shop, RETRY, DONE)
    world.claude(shop, RETRY, DONE)

    found = answer(world, **ASKED)

    assert ([own], "codex") == ([hit["session_id"] for hit in found["results"]], found["agent_type"])
    assert "agents_notice" not in found


@pytest.mark.parametrize("more", [{}, {"auto_fork": True}])
@pytest.mark.parametrize("said", [{"agent_type": "codex"}, {"collection": "codex-sessions"}])
def test_who_says_whose_sessions_are_meant_gets_no_others(world: World, shop, said, more):
    world.claude(shop, RETRY, DONE)

    found = answer(world, **ASKED, **said, **more)

    assert (0, "codex") == (found["count"], found["agent_type"])
    assert not {"agents_notice", "forked_session"} & found.keys()
    assert "agent_type 'all'" in found["next"]


def test_where_nobody_elses_are_found_either_that_is_said(world: World, shop):
    own = world.codex(shop, *OTHER)

    found = answer(world, client="codex-mcp-client", intent="xylophone quartz")

    assert {own} >= {hit["session_id"] for hit in found["results"]}
    assert "No session of Codex fits; other agents' sessions were searched too" == found["agents_notice"]


@pytest.fixture
def forked(monkeypatch) -> list[tuple[str, str | None]]:
    """Replace the start of a fork; record the session and the agent that it is handed over to."""
    asked: list[tuple[str, str | None]] = []

    def fork_session(request: ForkRequest, _engine: object = None) -> Forked:
        asked.append((request.session, request.as_agent))
        return a_fork(request.session)

    monkeypatch.setattr("smart_fork.forking.plan.fork_session", fork_session)
    return asked


def made(step: str) -> dict:
    """Return the arguments of a call that an answer suggests."""
    tool, _, arguments = step.partition(": ")[2].partition(" ")
    assert tool == "smart_fork"
    return json.loads(arguments)


def test_the_index_of_a_result_means_the_same_when_it_is_forked(world: World, shop, forked):
    world.codex(shop, *OTHER)
    knows = world.claude(shop, RETRY, DONE)

    assert knows == answer(world, **ASKED)["results"][0]["session_id"]
    assert 0 == answer(world, **ASKED, fork_index=0)["forked_session"]["forked_index"]
    assert [(knows, None)] == forked


@pytest.mark.parametrize("own", [(), OTHER], ids=["none of its own", "nothing that fits"])
@pytest.mark.parametrize("least", [{}, {"min_score": 0}, {"min_score": 0.5}])
@pytest.mark.slow
def test_the_best_one_is_of_all_agents_and_named_with_the_calls_that_fork_it(world: World, shop, forked, own, least):
    if own:
        world.codex(shop, *own)
    knows = world.claude(shop, RETRY, DONE)

    looked, told = answer(world, **ASKED, **least), answer(world, **ASKED, **least, auto_fork=True, prompt="do it")

    assert looked["results"] == told["results"]
    assert looked["agents_notice"] == told["agents_notice"] == NOTICE
    assert [] == forked
    assert told["error"] == (f"Nothing was forked: {knows} fits best, but a fork of it starts Claude Code, not Codex")
    assert ["Hand it over to Codex", "Start Claude Code"] == [step.partition(":")[0] for step in told["next_steps"]]
    for step in told["next_steps"]:
        again = answer(world, client="codex-mcp-client", **made(step))
        assert (knows, 0) == (again["forked_session"]["resume_session_id"], again["forked_session"]["forked_index"])
    assert [(knows, "codex"), (knows, None)] == forked
    assert {"do it"} == {made(step)["prompt"] for step in told["next_steps"]}


@pytest.mark.parametrize(
    ("said", "handed"),
    [({"as_agent": "codex"}, "codex"), ({"agent_type": "all"}, None), ({"agent_type": "claude"}, None)],
)
def test_another_agents_session_is_forked_where_the_caller_says_how(world: World, shop, forked, said, handed):
    knows = world.claude(shop, RETRY, DONE)

    told = answer(world, **ASKED, **said, auto_fork=True)

    assert [(knows, handed)] == forked
    assert "next_steps" not in told


@pytest.mark.slow
def test_a_session_is_handed_over_although_its_own_agent_is_not_installed(world: World, shop, forked):
    knows = world.claude(shop, RETRY, DONE)
    (world.home / "bin/claude").unlink()

    barred = [answer(world, **ASKED, **how) for how in ({"auto_fork": True}, {"fork_index": 0})]

    for told in barred:
        assert "claude was not found" in told["error"] + told["hint"]
        (step,) = told["next_steps"]
        assert step.startswith("Hand it over to Codex: ")
        answer(world, client="codex-mcp-client", **made(step))
    for how in ({"auto_fork": True}, {"fork_index": 0}):
        assert "error" not in answer(world, **ASKED, **how, as_agent="codex")
    assert [(knows, "codex")] * 4 == forked


def test_a_session_whose_log_is_deleted_is_no_step(world: World, shop, forked):
    knows = world.claude(shop, RETRY, DONE)
    world.find(RETRY, shop)
    world.log_of(knows).unlink()

    told = answer(world, **ASKED, auto_fork=True)

    assert "read_session reads it" in told["hint"]
    assert "next_steps" not in told
    assert [] == forked


def test_a_likelier_one_that_cannot_be_forked_is_named_beside_the_fork(world: World, shop, forked, monkeypatch):
    """The likelier session is the asking agent's own; a session of another agent is forked instead."""
    knows, other = world.claude(shop, RETRY, DONE), world.codex(shop, RETRY, DONE)
    found = an_answer(
        a_hit(0.7, knows, can_fork=False, warning="claude is too old"), a_hit(0.6, other, agent_type="codex")
    )
    monkeypatch.setattr("smart_fork.forking.search_and_fork.find_in_all", lambda *_: found)

    told = answer(world, **ASKED, auto_fork=True, explain=True)

    assert [(other, None)] == forked
    assert knows == made(told["next_steps"][0])["fork_session_id"]


def test_an_answer_without_results_is_left_as_it_is():
    said = Unsearched(error="index_not_available", message="no", next_steps=("Wait.",))

    assert said == find_in_all(FindRequest("x", agent_type="codex"), lambda _: said)


def test_another_engines_scores_are_no_chances():
    own = an_answer(a_hit(0.01), engine="qmd", agent_type="codex")

    assert own == find_in_all(FindRequest("x", agent_type="codex"), lambda _: own)


def test_an_index_that_was_waited_for_is_not_waited_for_again(world: World, shop, monkeypatch):
    world.claude(shop, "paint the header", DONE)
    read, waited = [], []
    embed_first, read_changes = index_refresh.embed_first, index_refresh.read_changes

    def embed(*how: Any, **more: Any) -> Report:
        waited.append(how[3])
        return embed_first(*how[:3], 0.0, *how[4:], **more)

    monkeypatch.setattr(index_refresh, "embed_first", embed)
    monkeypatch.setattr(index_refresh, "read_changes", lambda *how: read.append(how) or read_changes(*how))
    with opened(Engine(world.model), shop) as library:
        find_in_all(FindRequest("tidy the kitchen", agent_type="codex"), library.find)

    assert 1 == len(read)
    assert waited == sorted(waited, reverse=True)
    assert waited[-1] <= 1.0


@pytest.mark.parametrize(
    ("asks", "note"),
    [
        ("codex", ["This starts Claude Code, not Codex: the session is one of Claude Code"]),
        ("claude", []),
        (None, []),
    ],
)
def test_a_fork_of_another_agents_session_is_named_as_what_it_is(world: World, shop, asks, note):
    knows = world.claude(shop, RETRY, DONE)
    before = calling.get()
    calling.set(asks)
    try:
        forked = fork_session(ForkRequest(knows, Options("go on", place="process"), dry_run=True))
    finally:
        calling.set(before)

    assert note == [one for one in forked.warnings if "starts" in one]
    assert "claude" == forked.agent_type
