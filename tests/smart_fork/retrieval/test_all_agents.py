"""A question of one agent, whose own sessions have nothing that fits."""

from __future__ import annotations

import pytest

from smart_fork.agents.options import Options
from smart_fork.agents.selection import readable, word_for
from smart_fork.caller import calling_agent, speak_for
from smart_fork.forking.launch import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.retrieval.all_agents import find_in_all
from smart_fork.retrieval.answer import Found, Unsearched
from smart_fork.retrieval.request import FindRequest
from smart_fork.retrieval.upkeep import Engine
from tests.smart_fork.client import answer
from tests.smart_fork.found import a_fork, a_hit, an_answer
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
    assert (word_for(readable()), NOTICE) == (found["agent_type"], found["agents_notice"])


def test_where_its_own_fit_no_other_is_searched(world: World, shop):
    own = world.codex(shop, RETRY, DONE)
    world.claude(shop, RETRY, DONE)

    found = answer(world, **ASKED)

    assert ([own], "codex") == ([hit["session_id"] for hit in found["results"]], found["agent_type"])
    assert "agents_notice" not in found


@pytest.mark.parametrize("said", [{"agent_type": "codex"}, {"collection": "codex-sessions"}, {"auto_fork": True}])
def test_who_says_whose_sessions_are_meant_or_leaves_the_choice_to_us_gets_no_others(world: World, shop, said):
    world.claude(shop, RETRY, DONE)

    found = answer(world, **ASKED, **said)

    assert (0, "codex") == (found["count"], found["agent_type"])
    assert not {"agents_notice", "forked_session"} & found.keys()


def test_where_nobody_elses_are_found_either_that_is_said(world: World, shop):
    own = world.codex(shop, *OTHER)

    found = answer(world, client="codex-mcp-client", intent="xylophone quartz")

    assert {own} >= {hit["session_id"] for hit in found["results"]}
    assert "No session of Codex fits; other agents' sessions were searched too" == found["agents_notice"]


def test_the_index_of_a_result_means_the_same_when_it_is_forked(world: World, shop, monkeypatch):
    world.codex(shop, *OTHER)
    knows = world.claude(shop, RETRY, DONE)
    forked: list[str] = []
    monkeypatch.setattr(
        "smart_fork.forking.launch.fork_session", lambda asked: forked.append(asked.session) or a_fork(asked.session)
    )

    assert knows == answer(world, **ASKED)["results"][0]["session_id"]
    assert 0 == answer(world, **ASKED, fork_index=0)["forked_session"]["forked_index"]
    assert [knows] == forked


def test_an_answer_without_results_is_left_as_it_is():
    said = Unsearched(error="index_not_available", message="no", next_steps=("Wait.",))

    assert said == find_in_all(FindRequest("x", agent_type="codex"), Engine(None), lambda *_: said)


def test_another_engines_scores_are_no_chances():
    own = an_answer(a_hit(0.01), engine="qmd", agent_type="codex")

    assert own == find_in_all(FindRequest("x", agent_type="codex"), Engine(None), lambda *_: own)


def test_an_index_that_was_waited_for_is_not_waited_for_again(world: World):
    waited = []

    def look(request: FindRequest, engine: Engine) -> Found:
        waited.append(engine.read_seconds)
        return an_answer(agent_type=request.agent_type, complete=False)

    find_in_all(FindRequest("x", agent_type="codex"), Engine(world.model), look)

    assert waited[1] < waited[0]


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
    before = calling_agent()
    speak_for(asks)
    try:
        forked = fork_session(ForkRequest(knows, Options("go on", place="process"), dry_run=True))
    finally:
        speak_for(before)

    assert note == [one for one in forked.warnings if "starts" in one]
    assert "claude" == forked.agent_type
