"""Tests of fork titles: a fork is named by its own first prompt, its parent's title names only the parent."""

from __future__ import annotations

import json

import pytest

from indexer.session_work import Outcome
from smart_fork.finding import session_lookup
from smart_fork.finding.recent import list_recent
from smart_fork.forking.branch import branch
from smart_fork.forking.request import BranchRequest
from tests.smart_fork.world import Did

PARENT, ASKED = "add retry to the uploader", "write the changelog entry"
COMMITS = Did("Bash", {"command": "git commit -m x"}, "[main 0123456] x")


def titles(shop) -> dict[str, str]:
    return {one.session_id: one.title for one in list_recent("all", str(shop), 20).sessions}


def forked(world, shop, parent: str, *said: str, head: tuple[dict, ...] = (), dated: bool = True) -> str:
    """Write a fork as Claude Code does: title, start time, copied records, its own words, and the title again."""
    fork = world.fork_claude(parent, shop, *said)
    log = world.log_of(fork)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    names = [record | {"sessionId": fork} for record in head]
    at = records[-len(said)]["timestamp"]
    begun = {"type": "queue-operation", "operation": "enqueue", "timestamp": at, "sessionId": fork}
    world.write_claude(
        fork, shop, [*names, {"type": "mode", "sessionId": fork}, *([begun] if dated else []), *records, *names]
    )
    return fork


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("head", "title"),
    [
        ((), ASKED),
        (({"type": "ai-title", "aiTitle": "Uploader retry"},), ASKED),
        (({"type": "custom-title", "customTitle": "uploads"},), f"uploads: {ASKED}"),
    ],
)
def test_a_fork_of_claude_code_is_called_by_its_own_prompt_whatever_names_it_copies(world, shop, head, title, indexed):
    parent = world.claude(shop, PARENT, "it retries")
    fork = forked(world, shop, parent, ASKED, "done", head=head)
    if indexed:
        world.find("anything", shop)

    assert {parent: PARENT, fork: title} == titles(shop)


def test_a_name_that_a_fork_gets_later_is_its_own(world, shop):
    parent = world.claude(shop, PARENT, "it retries")
    fork = forked(world, shop, parent, ASKED, "done", head=({"type": "ai-title", "aiTitle": "Uploader retry"},))
    named = {"type": "ai-title", "aiTitle": "Changelog", "sessionId": fork}
    world.write_claude(fork, shop, [named], "a")

    assert {parent: PARENT, fork: "Changelog"} == titles(shop)


@pytest.mark.parametrize("agent", ["claude", "codex", "qwen", "gemini"])
def test_what_a_branch_was_asked_is_not_what_its_parent_was(world, shop, agent):
    parent = world.worked(agent, shop, f"> {PARENT}", COMMITS, "it retries") if agent in ("claude", "codex") else ""
    if not parent:
        first = world.claude(shop, PARENT, "it retries")
        parent = branch(BranchRequest(first, as_agent=agent)).session_id
    fork = session_lookup.read(session_lookup.locate(branch(BranchRequest(parent)).session_id))

    assert 0 < len(fork.turns)
    assert fork.own in (0, len(fork.turns))
    assert session_lookup.read(session_lookup.locate(parent)).title != fork.title


def test_a_fork_has_its_own_outcome(world, shop):
    parent = world.worked("claude", shop, f"> {PARENT}", COMMITS, "it retries")
    fork = forked(world, shop, parent, ASKED, "done")
    read = session_lookup.read(session_lookup.locate(fork))

    assert Outcome.of(session_lookup.read(session_lookup.locate(parent))) is Outcome.COMMITTED
    assert Outcome.of(read) is Outcome.UNKNOWN
    assert [ASKED, "done"] == [turn.text for turn in read.turns[read.own :]]


@pytest.mark.parametrize("answers", [True, False])
def test_a_log_that_goes_on_from_another_file_is_called_by_what_was_asked_in_it(world, shop, answers):
    """Old versions copy records with the old session's id. A cleared session has only the plan of the old one."""
    before = world.claude_records(
        "0" * 8 + "-0000-4000-8000-" + "0" * 12, shop, PARENT, *(["it retries"] if answers else [])
    )
    session_id = world.claude(shop, *([] if answers else ["x"][:0]), ASKED, "done")
    own = [json.loads(line) for line in world.log_of(session_id).read_text().splitlines()]
    own[0]["parentUuid"] = before[-1]["uuid"]
    own = own if answers else [own[1] | {"parentUuid": before[0]["uuid"]}]
    world.write_claude(session_id, shop, [*before, *own])

    assert {session_id: ASKED if answers else PARENT} == titles(shop)


def test_a_session_that_nobody_forked_keeps_its_name(world, shop):
    """Prompts queued at the beginning are as old as the first one. A file may contain another session's title."""
    session_id = world.claude(shop, PARENT, "it retries", ASKED, "done")
    records = [json.loads(line) for line in world.log_of(session_id).read_text().splitlines()]
    begun = {"type": "queue-operation", "timestamp": records[0]["timestamp"], "sessionId": session_id}
    world.write_claude(session_id, shop, [begun, *(one | {"sessionId": "f" * 36} for one in records)])

    assert {session_id: PARENT} == titles(shop)
