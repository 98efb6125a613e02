"""Over MCP: a question in other words, the twin that only reads, and what an uncertain answer asks for."""

from __future__ import annotations

from pathlib import Path

import anyio
import mcp_types as types
import pytest
from mcp import Client

from smart_fork.finding.ranking import score_in_words
from tests.smart_fork.mcp_client import answer, refusal
from tests.smart_fork.tool_server import create_server
from tests.smart_fork.world import World
from tests.support.cases import thorough_except_first

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"


@pytest.fixture(autouse=True)
def _in_the_project(shop: Path, monkeypatch):
    monkeypatch.chdir(shop)


def offered(world: World) -> dict[str, types.Tool]:
    async def ask() -> list[types.Tool]:
        async with Client(create_server(world.model)) as session:
            return (await session.list_tools()).tools

    return {tool.name: tool for tool in anyio.run(ask)}


@pytest.mark.parametrize("name", ["smart_fork", "find_sessions"])
def test_both_that_find_ask_for_further_phrasings_without_being_told(world, name):
    tool = offered(world)[name]

    assert "Always give `also`, four further phrasings" in " ".join(tool.description.split())
    assert "array" == tool.input_schema["properties"]["also"]["type"]
    assert "also" not in tool.input_schema["required"]


def test_which_phrasings_is_said_once_and_said_where(world):
    also, other = (offered(world)[name].input_schema["properties"]["also"] for name in ("find_sessions", "smart_fork"))

    for asked in (
        "developer types",
        "reworded",
        "short title",
        "identifiers, files",
        "error texts",
        "sessions' language",
    ):
        assert asked in also["description"]
    assert {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 300}}.items() <= also.items()
    assert "find_sessions" in other["description"]


def test_the_twin_takes_what_finds_and_nothing_that_forks(world):
    tools = offered(world)
    both, twin = (set(tools[name].input_schema["properties"]) for name in ("smart_fork", "find_sessions"))

    forking = {"auto_fork", "fork_index", "fork_session_id"}
    of_a_fork = {
        "prompt",
        "run_in",
        "at",
        "worktree",
        "with_changes",
        "budget",
        "keep",
        "drop",
        "brief",
        "as_agent",
        "unmasked",
    }
    assert both - twin == forking | of_a_fork | {"dry_run", "merge"}
    assert {"session", "error", "tag"} == twin - both  # only found: exchanges, ends of errors, what a person marked


@pytest.mark.thorough
def test_the_twin_answers_what_smart_fork_answers_in_brief(world, shop):
    world.claude(shop, RETRY, DONE)
    world.claude(shop, "draw the map", "drawn")

    for asked in ({}, {"also": ["retry uploads", "backoff upload.py"]}):
        whole, short = (answer(world, tool, intent=RETRY, **asked) for tool in ("smart_fork", "find_sessions"))
        assert whole.get("next") == short.get("next")
        for one, other in zip(whole["results"], short["results"], strict=True):
            told = {key: value for key, value in other.items() if key not in ("match", "lineage")}
            assert told.items() <= one.items()
            assert other["match"].items() <= one["match"].items()
    asked = {"intent": RETRY, "limit": 1, "explain": True}
    assert answer(world, **asked) == answer(world, "find_sessions", **asked)


def test_the_twin_forks_nothing(world, shop, launched):
    world.claude(shop, RETRY, DONE)

    assert "unknown parameter: auto_fork" in refusal(world, "find_sessions", intent=RETRY, auto_fork=True)
    assert "forked_session" not in answer(world, "find_sessions", intent=RETRY, also=[DONE])
    assert [] == launched


@pytest.mark.parametrize("tool", thorough_except_first(["smart_fork", "find_sessions"]))
@pytest.mark.slow
def test_an_uncertain_answer_asks_for_other_words(world, shop, tool):
    world.claude(shop, RETRY, DONE)
    world.claude(shop, "draw the map", "drawn")

    unsure = answer(world, tool, intent="hochladen wiederholen")
    sure = answer(world, tool, intent=RETRY)
    blank = answer(world, tool, intent="hochladen wiederholen", also=["", " "])
    again = answer(world, tool, intent="hochladen wiederholen", also=["carry umbrellas"])

    best = unsure["results"][0]["score"]
    assert best < 0.5 <= sure["results"][0]["score"]
    assert unsure["next"].startswith(
        f"The best score is {score_in_words(best)}. Call this tool again with the same intent and `also`: four"
    )
    assert blank["next"] == unsure["next"]
    assert "next" not in sure
    assert again["next"] == (
        f"None fits: the best score is {score_in_words(again['results'][0]['score'])}. Fork none of them; work without one."
    )


def test_where_nothing_was_found_other_words_may_find_it(world, shop):
    world.claude(shop, RETRY, DONE)

    assert "best score is 0.00" in answer(world, intent="hochladen", min_score=0.9)["next"]


def test_other_words_help_nobody_where_nothing_can_be_found(world, shop, monkeypatch):
    nothing = answer(world, intent=RETRY)
    assert nothing["count"] == 0
    assert "also" not in nothing["next"]

    world.claude(shop, RETRY, DONE)
    monkeypatch.setenv("SMART_FORK_INDEXING", "0")
    monkeypatch.setenv("SMART_FORK_HOME", "/dev/null/x")
    assert "also" not in answer(world, intent="hochladen").get("next", "")


def test_the_command_line_is_not_told_to_call_a_tool(world, shop):
    world.claude(shop, RETRY, DONE)

    assert "next" not in world.find("hochladen wiederholen", shop)


def test_a_list_that_comes_as_text_is_a_list(world, shop):
    world.claude(shop, RETRY, DONE)

    assert ["one", "two"] == answer(world, intent=RETRY, also='["one", "two"]')["also"]
    assert "also" not in answer(world, intent=RETRY, also=None)
    assert "also" not in answer(world, intent=RETRY, also=[])


@pytest.mark.parametrize("tool", ["smart_fork", "find_sessions"])
def test_hostile_words_are_words_like_any_other(world, shop, tool):
    knows = world.claude(shop, RETRY, DONE)
    also = ['" OR part: p1 NOT "', "'; DROP TABLE sessions; --", "\x1b[2J\u202e", "NEAR(a b)*"]

    found = answer(world, tool, intent=RETRY, also=also)

    assert knows == found["results"][0]["session_id"]
    assert not {"\x1b", "\u202e"} & set("".join(found.get("also", [])))


def test_a_fork_at_the_answer_is_where_all_phrasings_together_say(world, shop):
    knows = world.claude(
        shop, "draw the map of the harbour", "drawn", RETRY, "the uploader retries", "paint the ship", "painted"
    )
    chosen = {"intent": "hochladen", "at": "match", "fork_session_id": knows, "limit": 1, "dry_run": True}

    phrasings = (["retry the uploader with backoff"], ["map of the harbour", "draw the harbour"])
    first, second = (answer(world, **chosen, also=also)["forked_session"]["warnings"] for also in phrasings)

    assert "Forked after message 3: exchange 2 of 3 answers best" in first
    assert "Forked after message 1: exchange 1 of 3 answers best" in second
