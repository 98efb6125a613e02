"""Tests of the next step that an answer suggests to a model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from smart_fork.finding.answer import Unsearched
from smart_fork.finding.hit import Match
from smart_fork.server.session_tools import after_search
from smart_fork.server.worker_tools import about_workers
from tests.smart_fork.answers import a_hit, a_worker, an_answer
from tests.smart_fork.mcp_client import answer, call
from tests.smart_fork.world import World
from tests.support.cases import parametrize_subtests, thorough_except_first

RETRY = "add retry with backoff to the uploader"
BEHIND = "The index is 40 % embedded; the rest continues in the background, about 2 min."
EARLY, LANGUAGE = "This answer is early.", "Most sessions here are in German."


@parametrize_subtests(
    ("told", "step"),
    [
        (an_answer(sessions=0), "This project has no past session. Search all agents: agent_type 'all'."),
        (an_answer(sessions=0, agent_type="all"), "This project has no past session. Work without one."),
        (an_answer(sessions=0, background_notice=BEHIND), f"This project has no past session. {BEHIND} Ask again then."),
        (an_answer(a_hit(0.31), also=("x",)), "The best score is 0.31: read it before you rely on it, or work without."),
        (an_answer(a_hit(0.31), also=("x",), background_notice=BEHIND),
         f"The best score is 0.31: read it before you rely on it, or work without. {BEHIND} Ask again then."),
        (an_answer(a_hit(0.04), also=("x",)), "None fits: the best score is 0.04. Fork none of them; work without one. Search all agents: agent_type 'all'."),
        (an_answer(a_hit(0.04), also=("x",), agent_type="all"), "None fits: the best score is 0.04. Fork none of them; work without one."),
        (an_answer(a_hit(0.2), query=""), ""),
        (an_answer(a_hit(0.8), background_notice=BEHIND), ""),
        (an_answer(a_hit(0.8), early_notice=EARLY, background_notice=BEHIND), EARLY),
        (an_answer(a_hit(0.31), also=("x",), early_notice=EARLY),
         f"The best score is 0.31: read it before you rely on it, or work without. {EARLY} Ask again then."),
        (an_answer(a_hit(0.04), also=("x",), early_notice=EARLY),
         f"{EARLY} Ask again then, or read the best one before you rely on it."),
        (an_answer(a_hit(0.04), also=("x",), language_notice=LANGUAGE),
         f"{LANGUAGE} No chance is known. Read the best one so far before you rely on it."),
        (an_answer(replace(a_hit(0.8), token_estimate=90_000, match=Match(ends_at_message=3, token_estimate=20_000))),
         "If you fork it, give at=3: up to the answer 20,000 tokens, the whole session 90,000."),
        (an_answer(replace(a_hit(0.8), token_estimate=414_000)), "If you fork it, give budget=30k: the whole session 414,000 tokens."),
        (an_answer(replace(a_hit(0.8), token_estimate=414_000, match=Match(ends_at_message=3, token_estimate=150_000))),
         "If you fork it, give at=3 and budget=30k: up to the answer 150,000 tokens, the whole session 414,000."),
        (an_answer(a_hit(0.1), engine="qmd"), ""),
        (an_answer(a_hit(0.1), error="no", hint="Do this."), "Do this."),
        (an_answer(a_hit(0.1), forked_session={}), ""),
        (Unsearched(error="index_not_available", message="no", next_steps=("First.", "Then.")), "First."),
    ],
)  # fmt: skip
def test_after_a_search(told, step):
    assert step == after_search(told)


def test_a_low_chance_of_a_question_that_was_put_in_one_way_asks_for_others():
    step = after_search(an_answer(a_hit(0.31)))

    assert step.startswith("The best score is 0.31. Call this tool again with the same intent and `also`: four further")


def test_of_workers_one_that_asks_one_that_failed_and_those_that_are_not_done():
    asks = a_worker("a", state="running", waiting_for="May I?")
    failed = a_worker("b", state="failed")
    works = a_worker("c", state="running")

    assert "" == about_workers([works]) == about_workers([works], waited=True)
    assert "a needs an answer" in about_workers([asks, works])
    assert "answer: true" in about_workers([asks, works])
    assert "b has failed" in about_workers([works, failed])
    assert "Call wait_workers again" in about_workers([works], waited=True, done=False)


@pytest.fixture(autouse=True)
def _in_the_project(shop, monkeypatch):
    monkeypatch.chdir(shop)


@pytest.mark.slow
def test_it_is_in_the_answers(world: World, shop, monkeypatch):
    assert "This project has no past session. Work without one." == answer(world, intent=RETRY)["next"]
    assert "agent_type 'all'" in answer(world, intent=RETRY, agent_type="claude")["next"]
    world.claude(shop, RETRY, "done")
    assert "also" in answer(world, intent="which sauce goes with asparagus")["next"]
    assert (
        "dry_run: false" in answer(world, "excise_session", session_id=world.claude(shop, "a", "b"), turns="0")["next"]
    )
    monkeypatch.setenv("SMART_FORK_INDEXING", "0")
    monkeypatch.setenv("SMART_FORK_HOME", str(world.home / "new"))
    told = answer(world, intent=RETRY)
    assert told["next_steps"][0] == told["next"]


LONG = {
    "of words": "and retry with backoff " * 60, "in Cyrillic": "повторная отправка файла " * 60, "of signs": "重试上传" * 300,
    "of emoji and quotes": '"🙂\\' * 400,
}  # fmt: skip


@pytest.mark.parametrize("tool", thorough_except_first(["find_sessions", "smart_fork"]))
@pytest.mark.parametrize("text", thorough_except_first(LONG.values(), 2), ids=LONG)
def test_five_hits_are_told_in_4_kb_without_nulls_however_long_titles_and_snippets_are(world, shop, tool, text):
    """The limit excludes the paths in smart_fork's results, which depend on the machine."""
    for number in range(6):
        world.claude(shop, f"{RETRY} {number} {text}", f"The uploader retries {text}")

    told = call(world, tool, intent=RETRY, limit=5, also=["retry the upload", "backoff"]).structured_content

    assert 5 == len(told["results"])
    assert all(hit["snippet"] and hit["title"] for hit in told["results"])
    for hit in told["results"]:
        for place in ("source_path", "jsonl_path", "fork_command", "working_directory"):
            hit.pop(place, None)
    written = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    assert len(written.encode()) <= 4_000
    assert "null" not in written
