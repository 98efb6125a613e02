"""Tests that all logs made of a session are found from the logs themselves, to any depth, without an index."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest

from indexer.safe_files import state_home
from smart_fork import provenance
from smart_fork.agents.ancestry import CopiedMessage, FamilyLog
from smart_fork.forking.family import Descent, parents
from smart_fork.workers.registry import Registry
from tests.smart_fork.session_family import branch
from tests.smart_fork.world import World
from tests.support.cases import thorough_except_first

SAID = ("add retry to the uploader", "retries are there", "and the docs", "they are there")


def found(world: World, session_id: str, agent: str = "claude") -> Descent:
    path = world.log_of(session_id)
    return Descent.of(agent, session_id, path, keys_of(path))


def keys_of(path: Path) -> set[str]:
    return {one["uuid"] for one in map(json.loads, path.read_text().splitlines()) if "uuid" in one}


def ids(some) -> set[str]:
    return {one.session_id for one in some}


@pytest.fixture(params=thorough_except_first(["claude", "codex"]))
def chain(request, world, shop) -> tuple[str, list[str]]:
    """Return an agent, a session, its branch, the branch's branch, and so on."""
    made = [getattr(world, request.param)(shop, *SAID)]
    for _ in range(4):
        made.append(branch(made[-1])["session_id"])
    return request.param, made


def test_branches_of_branches_are_found_without_an_index_and_without_a_register(world, chain):
    agent, (first, *below) = chain
    shutil.rmtree(state_home(), ignore_errors=True)

    assert set(below) == ids(found(world, first, agent).descendants)
    middle = found(world, below[1], agent)
    assert set(below[2:]) == ids(middle.descendants)
    assert not any(one.handed_over for one in middle.descendants)


def test_a_branch_in_another_folder_is_found(world, shop):
    first = world.claude(shop, *SAID)
    made = branch(first, cwd=str(world.repository("elsewhere")))["session_id"]

    assert {made} == ids(found(world, first).descendants)


def test_a_fork_that_records_nothing_is_found_by_the_records_that_it_shares(world, shop):
    """Nothing says which of the two came first, so the log is reported and not cut."""
    first = world.claude(shop, *SAID)
    fork = world.fork_claude(first, shop, "in blue", "blue")

    assert {fork} == ids((*(one := found(world, first)).descendants, *one.unclear))


def test_a_registered_fork_and_its_fork_are_found(world, shop):
    first = world.claude(shop, *SAID)
    fork = world.fork_claude(first, shop, "in blue", "blue")
    again = world.fork_claude(fork, shop, "in red", "red")
    with Registry() as registry:
        for parent, child in ((first, fork), (fork, again)):
            registry.add("claude", source_session_id=parent, session_id=child, place="process", cwd=shop)

    assert ({fork, again}, set()) == (ids(found(world, first).descendants), ids(found(world, first).unclear))
    assert {again} == ids(found(world, fork).descendants)
    assert {first} == ids(found(world, fork).siblings)


def test_what_stands_between_may_be_gone(world, shop):
    first = world.claude(shop, *SAID)
    between = branch(first)["session_id"]
    last = branch(between)["session_id"]
    world.log_of(between).unlink()

    assert {last} == ids(found(world, first).descendants)


def test_a_session_that_was_handed_over_twice_is_told_and_so_is_what_was_made_of_it(world, shop):
    first = world.claude(shop, *SAID)
    told = branch(first, as_agent="codex")["session_id"]
    back = branch(told, as_agent="claude")["session_id"]
    last = branch(back)["session_id"]

    below = found(world, first).descendants
    assert {told, back, last} == ids(below)
    assert all(one.handed_over for one in below)


def test_a_fork_of_a_told_session_is_told_also_where_nothing_says_which_of_them_was_first(world, shop):
    first = world.codex(shop, *SAID)
    told = branch(first, as_agent="claude")["session_id"]
    for number in range(4):  # of some the ids are smaller
        fork = world.fork_claude(told, shop, "in blue", "blue")
        for log in (world.log_of(told), world.log_of(fork)):
            records = [json.loads(line) for line in log.read_text().splitlines()]
            log.write_text("".join(json.dumps(one | {"forkedFrom": None}) + "\n" for one in records))
        last = branch(fork)["session_id"]
        below = found(world, first, "codex").descendants
        assert {told, fork, last} <= ids(below), number
        assert all(one.handed_over for one in below)


def test_a_fork_that_seems_older_than_its_parent_is_not_taken_for_that_one_s_parent():
    """Both have one beginning, and the registry says which is the fork."""
    names = ("first", "fork", "between")
    family = [FamilyLog("claude", name, Path(), begun=str(number)) for number, name in enumerate(names)]
    for kin, count in zip(family, (2, 3, 3), strict=True):
        kin.messages += [CopiedMessage(str(number)) for number in range(count)]

    assert {"fork": "between", "between": "first"} == parents(family, {"fork": "between"})


def log(name: str, begun: int, *messages: CopiedMessage, recorded: str = "") -> FamilyLog:
    return FamilyLog("claude", name, Path(), begun=str(begun), recorded=recorded, messages=list(messages))


def test_two_branches_of_a_session_that_is_gone_are_not_each_other_s_parent():
    copied = [CopiedMessage(number, "gone", number) for number in "12"]
    family = [log(name, at, *copied, CopiedMessage(name), recorded="gone") for at, name in enumerate(("one", "two"))]

    assert {"one": "gone", "two": "gone"} == parents(family, {})


@pytest.mark.parametrize(("above", "names"), [("parent", ""), ("sibling", "gone")])
def test_of_logs_that_share_as_much_the_recorded_parent_or_its_fork_is_the_parent(above, names):
    """The child shares more messages than it marks as copied, so its log alone does not say where they are from."""
    messages = [CopiedMessage(number) for number in "12"]
    recorded = names or above
    family = [log("earlier", 0, *messages), log(above, 1, *messages, recorded=names)]
    child = log("child", 2, CopiedMessage("1", recorded, "1"), messages[1], recorded=recorded)

    assert {above: "earlier", "child": above} == parents([*family, child], {})


@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
def test_what_was_told_by_way_of_a_branch_without_a_log_is_found_and_the_branch_is_lost(world, shop, agent):
    first = getattr(world, agent)(shop, *SAID)
    between = branch(first)["session_id"]
    told = branch(between, as_agent="qwen")["session_id"]
    world.log_of(between).unlink()

    one = found(world, first, agent)
    assert ({told}, ((agent, between),)) == (ids(one.descendants), one.without_log)
    assert all(one.handed_over for one in one.descendants)


def test_a_merged_session_is_below_both(world, shop):
    one, other = world.claude(shop, *SAID), world.claude(shop, *SAID)
    merged = branch(one)["session_id"]
    provenance.remember_handover(provenance.HandedOver(merged, "claude", "claude", one), [("claude", other)])
    last = branch(merged)["session_id"]

    assert {merged, last} == ids(found(world, one).descendants) == ids(found(world, other).descendants)


def test_who_is_not_below_a_branch_is_beside_it(world, shop):
    first = world.claude(shop, *SAID)
    branches = [branch(first)["session_id"] for _ in range(2)]

    beside = found(world, branches[0])
    assert (set(), set(), {first, branches[1]}) == (ids(beside.descendants), ids(beside.unclear), ids(beside.siblings))


def test_sessions_that_name_each_other_do_not_go_round_and_neither_is_certain(world, shop):
    first = world.claude(shop, *SAID)
    other = branch(first)["session_id"]
    provenance.remember_handover(provenance.HandedOver(first, "claude", "claude", other))

    assert (set(), {other}) == (ids(found(world, first).descendants), ids(found(world, first).unclear))


def test_a_stranger_is_nobody_s_descendant(world, shop):
    first = world.claude(shop, *SAID)
    world.claude(shop, *SAID)
    world.codex(shop, *SAID, session_id=str(uuid.uuid4()))

    assert Descent() == found(world, first)


def test_the_beginning_of_a_log_is_read_once_however_often_a_command_asks(world, shop, monkeypatch):
    """A cut asks about ten times, in a home with very many logs."""
    from smart_fork.agents.claude.excision import ClaudeCutter
    from smart_fork.agents.claude.session_reader import ClaudeAncestry

    asked = world.claude(shop, *SAID)
    others = [world.claude(shop, f"other {number}", "done") for number in range(20)]
    begun, searched = [], []
    begins, holds = ClaudeAncestry.begins, ClaudeCutter.holds
    monkeypatch.setattr(ClaudeAncestry, "begins", lambda heads, kin: begun.append(kin.path) or begins(heads, kin))
    monkeypatch.setattr(
        ClaudeCutter, "holds", lambda cutter, path, keys: searched.append(path) or holds(cutter, path, keys)
    )
    for _ in range(4):
        assert not found(world, asked).descendants

    assert (len(others) + 1, len(others)) == (len(begun), len(searched))


def test_a_log_that_has_changed_is_read_again(world, shop):
    asked = world.claude(shop, *SAID)
    assert not found(world, asked).descendants

    made = branch(asked)["session_id"]

    assert {made} == ids(found(world, asked).descendants)
    shutil.copy(world.log_of(asked), world.log_of(made))
    assert {made} == ids(found(world, asked).unclear) | ids(found(world, asked).descendants)
