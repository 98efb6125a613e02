"""Forks within a budget and what each way would load, alike over MCP, by command and in a script."""

from __future__ import annotations

import json

import pytest

import smart_fork
from smart_fork import public
from tests.smart_fork.commands import command_model, run
from tests.smart_fork.mcp_client import answer, refusal
from tests.smart_fork.world import WordsModel

pytestmark = pytest.mark.slow

__all__ = ["command_model", "run"]

RETRY = "retry uploads with backoff"
SAID = [word for number in range(6) for word in (f"Step {number}: {'paint the wall ' * 60}", f"painted {number}")]
SAID[6:8] = "When the upload breaks off, retry uploads and wait longer each time", "It retries with backoff now"


@pytest.fixture
def knows(world, shop, run, scripted) -> str:
    session_id = world.claude(shop, *SAID)
    assert 0 == run("index", "run").code
    return session_id


@pytest.fixture
def forked_by_tool(world, shop, knows):
    def fork(**more: object) -> dict:
        asked = {"fork_session_id": knows, "run_in": "process", "project_path": str(shop), "brief": False} | more
        return answer(world, intent=RETRY, **asked)["forked_session"]

    return fork


def exchanges(selection: dict) -> dict[int, str]:
    return {one["number"]: one["kept"] for one in selection["exchanges"] if one["kept"] != "nothing"}


@pytest.mark.thorough
def test_a_dry_run_of_the_tool_says_what_that_of_the_command_says(forked_by_tool, knows, run, scripted):
    given = ("--keep", "2", "--drop", "5", "--budget", "match", "--in", "process", "--dry-run", "--json", "--no-brief")

    told = forked_by_tool(budget="match", keep="2", drop="5", dry_run=True)
    typed = json.loads(run("fork", knows, RETRY, *given).out)

    assert told["ways"] == typed["ways"]
    assert ["", "--budget match", "--budget 30000"] == [
        way["option"] for way in told["ways"] if way["option"] != "--at match"
    ]
    assert exchanges(told["selection"]) == exchanges(typed["selection"])
    assert (True, False) == (2 in exchanges(told["selection"]), 5 in exchanges(told["selection"]))
    assert told["price"] == typed["price"]
    assert {} == scripted.ran()


@pytest.mark.thorough
def test_a_dry_run_without_a_budget_compares_the_ways_as_well_and_starts_nothing(forked_by_tool, scripted, knows):
    told = forked_by_tool(dry_run=True)

    assert {"", "--budget match", "--budget 30000"} <= {way["option"] for way in told["ways"]}
    assert knows in told["command"]
    assert {} == scripted.ran()


@pytest.mark.thorough
def test_what_the_tool_forks_has_the_exchanges_that_its_dry_run_has_said(forked_by_tool, world, scripted):
    budget = {"budget": "match", "keep": "2", "drop": "5"}
    planned = forked_by_tool(**budget, dry_run=True)["selection"]

    made = forked_by_tool(**budget)

    scripted.call(made["worker_id"])
    written = world.log_of(made["new_session_id"]).read_text()
    assert exchanges(planned) == exchanges(made["selection"])
    assert [number for number in range(6) if f"Step {number}: " in written and f'"painted {number}"' in written] == [
        number - 1 for number in exchanges(planned) if number != 4
    ]
    assert "It retries with backoff now" in written
    assert "ways" not in made


def test_the_tool_merges_what_answers_in_several_within_one_budget(forked_by_tool, world, shop, knows, scripted):
    other = world.claude(shop, "how is the upload tested?", "With a server that breaks off.")
    both = {"merge": [other], "budget": "40k"}

    planned = forked_by_tool(**both, dry_run=True)
    assert {} == scripted.ran()
    made = forked_by_tool(**both)

    scripted.call(made["worker_id"])
    written = world.log_of(made["new_session_id"]).read_text()
    assert all(words in written for words in ("With a server that breaks off.", "It retries with backoff now"))
    for told in (planned, made):
        assert (knows, [other]) == (told["selection"]["session_id"], [one["session_id"] for one in told["merged"]])
    family = answer(world, "session_lineage", session_id=made["new_session_id"])["sessions"]
    assert {made["new_session_id"]: [other]} == {
        one["session_id"]: one["merged_from"] for one in family if "merged_from" in one
    }
    for wrong in ({"merge": [other]}, both | {"at": 2}, both | {"at": "match"}):
        asked = {"intent": RETRY, "fork_session_id": knows, "project_path": str(shop)}
        assert "merge needs a budget" in refusal(world, **asked, **wrong)


def test_exchanges_are_moved_over_only_within_a_budget_and_where_there_are_any(world, knows, shop, scripted):
    def refused(**more: str) -> str:
        return refusal(world, intent=RETRY, fork_session_id=knows, project_path=str(shop), **more)

    assert "needs a budget" in refused(keep="1")
    assert "given by number" in refused(budget="match", drop="one")
    said = answer(world, intent=RETRY, fork_session_id=knows, project_path=str(shop), budget="match", keep="77")
    assert "no exchange 77 to keep" in said["error"]
    assert {} == scripted.ran()


def test_a_branch_within_a_budget_has_what_a_fork_has_and_runs_nothing(world, knows, run, scripted, forked_by_tool):
    budget = {"budget": "match", "keep": "2", "drop": "5"}
    planned = exchanges(forked_by_tool(**budget, dry_run=True)["selection"])

    told = answer(world, "branch_session", session_id=knows, intent=RETRY, title="mine", **budget)
    typed = run("branch", knows, "--intent", RETRY, "--budget", "match", "--keep", "2", "--drop", "5", "--json")

    assert planned == exchanges(told["selection"]) == exchanges(json.loads(typed.out)["selection"])
    written = world.log_of(told["session_id"]).read_text()
    assert ("It retries with backoff now" in written, "painted 4" in written) == (True, False)
    assert "needs an intent" in refusal(world, "branch_session", session_id=knows, budget="match")
    assert "needs a budget" in refusal(world, "branch_session", session_id=knows, keep="1")
    assert "--intent" in run("branch", knows, "--intent", RETRY).err
    assert {} == scripted.ran()


def test_a_worker_that_is_forked_within_a_budget_has_what_answers_alone(world, knows, shop, scripted):
    order = {"project_path": str(shop), "prompt": RETRY, "run_in": "process", "worktree": False, "brief": False}
    within = order | {"fork_from": knows, "budget": "match", "keep": "2", "drop": "5"}

    (made,) = answer(world, "spawn_workers", workers=[within])["workers"]

    scripted.call(made["worker_id"])
    written = world.log_of(made["session_id"]).read_text()
    assert ("It retries with backoff now" in written, "painted 4" in written) == (True, False)
    assert any(note.startswith("It has ") and "of 6 exchanges" in note for note in made["warnings"])
    for wrong, why in (
        (order | {"budget": "match"}, "Worker 0: 'budget' needs a session to fork"),
        (order | {"fork_from": knows, "drop": "5"}, "needs a budget"),
        (within | {"prompt": None}, "needs a"),
        (within | {"prompt": " "}, "prompt is empty"),
        (within | {"budget": "lots"}, "is not a budget"),
    ):
        assert why in refusal(world, "spawn_workers", workers=[wrong])
    assert [made["worker_id"]] == [*scripted.ran()]


@pytest.mark.thorough
def test_a_script_looks_first_and_merges(world, knows, shop, scripted, monkeypatch):
    monkeypatch.setattr("indexer.default_embedder.configured_embedder", WordsModel)
    public._embedder.cache_clear()
    other = world.claude(shop, "how is the upload tested?", "With a server that breaks off.")

    looked = smart_fork.preview(knows, RETRY, budget="match", drop=[5], place="process")
    merged = smart_fork.merge([knows, other], RETRY, budget="40k", cwd=str(shop), place="process", brief=False)

    assert "nothing" == looked.selection.exchanges[4].kept
    assert looked.ways[0].tokens == smart_fork.preview(knows, RETRY, place="process").ways[0].tokens
    assert (knows, [other]) == (merged.started.selection.session_id, [one.session_id for one in merged.started.merged])
    scripted.call(merged.id)
    assert "With a server that breaks off." in world.log_of(merged.session_id).read_text()
    with pytest.raises(smart_fork.Usage, match="only for a budget"):
        smart_fork.preview(knows, RETRY, keep=[1])
    with pytest.raises(smart_fork.Usage, match="Several sessions"):
        smart_fork.merge(knows, RETRY, budget="40k")
    public._embedder.cache_clear()
