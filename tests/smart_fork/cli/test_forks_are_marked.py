"""A fork is marked as a fork in all lists of sessions, if its parent is known."""

from __future__ import annotations

import json

import pytest

from smart_fork.forking.branch import branch
from smart_fork.forking.request import BranchRequest
from smart_fork.workers.registry import Registry
from tests.smart_fork.forking.test_names_of_forks import ASKED, PARENT, forked


def listed(run, *words: str) -> dict[str, str]:
    """Return the parent that a list names for each session."""
    return {one["session_id"]: one.get("forked_from", "") for one in json.loads(run(*words).out)["sessions"]}


def found(run, *words: str) -> dict[str, str | None]:
    hits = json.loads(run("find", *words, "--json").out)["results"]
    return {hit["session_id"]: hit["lineage"]["parent"] for hit in hits}


def shown(run, session_id: str) -> str | None:
    return json.loads(run("show", session_id, "--json").out).get("forked_from")


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_branch_names_its_parent(run, world, shop, agent, indexed):
    parent = getattr(world, agent)(shop, PARENT, "it retries")
    fork = branch(BranchRequest(parent)).session_id
    if indexed:
        world.find("anything", shop)

    assert {parent: "", fork: parent} == listed(run, "list", "--json")
    assert [None, parent] == [shown(run, parent), shown(run, fork)]
    assert f"fork of {parent}" in run("show", fork).out


@pytest.mark.parametrize("indexed", [False, True])
def test_a_fork_that_records_nothing_is_known_by_the_register(run, world, shop, indexed):
    parent = world.claude(shop, PARENT, "it retries")
    fork = world.fork_claude(parent, shop, ASKED, "done")
    with Registry() as registry:
        worker = registry.add("claude", source_session_id=parent, place="tmux", cwd=shop)
        registry.set_session_id(worker.id, fork)
    if indexed:
        world.find("anything", shop)

    assert {parent: "", fork: parent} == listed(run, "list", "--json")
    assert parent == shown(run, fork)
    assert f"(fork of {parent[:8]})" in run("list").out


def test_a_fork_that_nobody_registered_is_known_by_the_index(run, world, shop):
    parent = world.claude(shop, PARENT, "it retries")
    fork = forked(world, shop, parent, ASKED, "done")
    assert {parent: "", fork: ""} == listed(run, "list", "--json")

    hits = found(run, ASKED)

    assert {fork: parent} == {one: above for one, above in hits.items() if one == fork} or hits == {parent: None}
    assert {parent: "", fork: parent} == listed(run, "list", "--json")
    assert parent == shown(run, fork)


def test_which_of_two_forks_was_first_is_not_guessed(run, world, shop):
    parent = world.claude(shop, PARENT, "it retries")
    forks = [forked(world, shop, parent, words, "done") for words in (ASKED, "draw the map")]
    world.find("anything", shop)

    assert dict.fromkeys([parent, *forks], "") == listed(run, "list", "--json")


def test_a_session_handed_over_names_where_it_is_from(run, world, shop):
    parent = world.claude(shop, PARENT, "it retries")
    told = branch(BranchRequest(parent, as_agent="codex")).session_id

    assert {parent: "", told: parent} == listed(run, "list", "--json", "--agent", "all")


def test_a_session_that_is_no_fork_has_no_mark(run, world, shop):
    world.claude(shop, PARENT, "it retries")

    assert "forked_from" not in run("list", "--json").out
    assert "fork of" not in run("list").out
