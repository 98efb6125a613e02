"""Tests that sessions with any shared record are one family, even if a fork does not begin where its parent began.

The logs are as Claude Code 2.1.197 writes them with ``--fork-session``: the records that its model receives, with
their ids.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest

from smart_fork.agents.log_readers import READERS
from smart_fork.forking.lineage import lineage
from tests.smart_fork.world import World

ASKED, NEXT = "add retry to the uploader", "write the changelog entry"
COMMAND = "<command-name>/clear</command-name>"
SUMMARY = "This session is being continued from a previous conversation. It was about the uploader."


def linked(*records: dict, after: str | None = None) -> list[dict]:
    """Return these records with each one's parent set to the record before it."""
    found: list[dict] = []
    for record in records:
        found.append(record | {"parentUuid": found[-1]["uuid"] if found else after})
    return found


def begun_with_commands(world: World, shop, parent: str) -> tuple[list[dict], list[dict]]:
    """Return the records of a session that begins with a command, and those of a fork with its prompt and answer only."""
    progress = {"type": "progress", "uuid": str(uuid.uuid4()), "sessionId": parent, "cwd": str(shop), "data": {}}
    one, two, prompt = (
        world.claude_records(parent, shop, words)[0] for words in (COMMAND, "<local-command-stdout>", ASKED)
    )
    answer = world.claude_records(parent, shop, ASKED, "it retries")[1]
    old = linked(progress, one, two, prompt, answer)
    return old, linked(prompt, answer)


def compacted(world: World, shop, parent: str) -> tuple[list[dict], list[dict]]:
    """Return a log with a compaction: only the records after it are sent."""
    before = world.claude_records(parent, shop, ASKED, "it retries", "and the docs", "written")
    boundary = before[0] | {"type": "system", "subtype": "compact_boundary", "uuid": str(uuid.uuid4()), "message": None}
    said, prompt = (world.claude_records(parent, shop, words)[0] for words in (SUMMARY, "and the tests"))
    answer = world.claude_records(parent, shop, ASKED, "tested")[1]
    after = linked(
        boundary | {"logicalParentUuid": before[-1]["uuid"]}, said | {"isCompactSummary": True}, prompt, answer
    )
    return before + after, after


def gap(world: World, shop, parent: str) -> tuple[list[dict], list[dict]]:
    """Return a log with a missing parent record: only the records after the gap are sent."""
    before = world.claude_records(parent, shop, ASKED, "it retries")
    then = [
        one | {"timestamp": f"2030-0{n + 1}-01T00:00:00Z"}
        for n, one in enumerate(world.claude_records(parent, shop, "docs", "written"))
    ]
    return before + linked(*then, after=str(uuid.uuid4())), linked(*then)


def last_of(world: World, session_id: str) -> str:
    return str(json.loads(world.log_of(session_id).read_text().splitlines()[-1])["uuid"])


KINDS = [begun_with_commands, compacted, gap]
Kind = Callable[[World, object, str], tuple[list[dict], list[dict]]]


def forked(world: World, shop, kind: Kind, *more: str) -> tuple[str, str]:
    """Return the ids of a session and of its fork."""
    parent, fork = str(uuid.uuid4()), str(uuid.uuid4())
    old, copied = kind(world, shop, parent)
    world.write_claude(parent, shop, old)
    own = linked(*world.claude_records(fork, shop, *(more or (NEXT, "done"))), after=copied[-1]["uuid"])
    begun = [
        {"type": "mode", "sessionId": fork},
        {"type": "queue-operation", "timestamp": own[0]["timestamp"], "sessionId": fork},
    ]
    world.write_claude(fork, shop, [*begun, *(one | {"sessionId": fork} for one in copied), *own])
    return parent, fork


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_and_its_fork_are_one_result(world, shop, kind):
    parent, fork = forked(world, shop, kind)
    other = world.claude(shop, f"{ASKED} again", "it retries twice")

    found = world.find(f"{ASKED}; {NEXT}", shop, limit=5)["results"]

    assert {other, *({parent, fork} & {hit["session_id"] for hit in found})} == {hit["session_id"] for hit in found}
    assert len(found) == 2
    (hit,) = [one for one in found if one["session_id"] != other]
    assert hit["lineage"]["family_size"] == 2
    assert {parent, fork} == {hit["session_id"], *hit["lineage"]["others"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["parent first", "fork first", "again"])
def test_it_does_not_matter_which_log_is_read_first(world, shop, kind, order):
    parent, fork = forked(world, shop, kind)
    first, then = (fork, parent) if order == "fork first" else (parent, fork)
    kept = world.log_of(then)
    text, _ = kept.read_text(), kept.unlink()
    world.find(ASKED, shop)
    kept.write_text(text)
    if order == "again":
        world.find(ASKED, shop)
        world.write_claude(
            parent, shop, linked(*world.claude_records(parent, shop, "more", "yes"), after=last_of(world, parent)), "a"
        )

    found = [hit for hit in world.find(ASKED, shop, limit=5)["results"] if hit["session_id"] in (first, then)]

    assert [2] == [hit["lineage"]["family_size"] for hit in found]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_of_a_fork_and_its_sibling_are_of_the_family_too(world, shop, kind):
    parent, fork = forked(world, shop, kind)
    grandchild = world.fork_claude(fork, shop, "and the release", "made")
    sibling = world.fork_claude(parent, shop, "and the page", "made")

    (hit,) = world.find(ASKED, shop, limit=5)["results"]

    assert {parent, fork, grandchild, sibling} == {hit["session_id"], *hit["lineage"]["others"]}


def test_sessions_that_were_asked_the_same_are_no_family(world, shop):
    for _ in range(2):
        parent = str(uuid.uuid4())
        world.write_claude(parent, shop, compacted(world, shop, parent)[0])

    assert [1, 1] == [hit["lineage"]["family_size"] for hit in world.find(ASKED, shop, limit=5)["results"]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", ["parent", "fork"])
def test_lineage_shows_both(world, shop, kind, asked):
    parent, fork = forked(world, shop, kind)
    world.find(ASKED, shop)

    told = lineage(parent if asked == "parent" else fork).sessions

    assert [(parent, None), (fork, parent)] == [(one.session_id, one.parent) for one in told]


@pytest.mark.parametrize("kind", KINDS)
def test_without_an_index_a_session_knows_the_forks_that_begin_within_it(world, shop, kind):
    parent, fork = forked(world, shop, kind)

    told = lineage(parent).sessions

    assert {parent, fork} == {one.session_id for one in told}


def test_the_beginnings_of_a_session_are_where_its_agent_goes_on(world, shop):
    parent, fork = forked(world, shop, compacted)
    read = [READERS["claude"].read(world.log_of(one)).session for one in (parent, fork)]

    assert read[1].turns[0].id in read[0].beginnings
    assert read[0].turns[0].id in read[0].beginnings
    assert all(turn.role != "assistant" for turn in read[0].turns if turn.id in read[0].beginnings)
