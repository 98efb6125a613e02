"""Families that go through several agents, by what was noted, and by what their logs say."""

from __future__ import annotations

import shutil

import pytest

from indexer.paths import state_home
from smart_fork.agents.options import Options
from smart_fork.excise.request import Request, cut
from smart_fork.forking.launch import fork_session
from smart_fork.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import FakeProcesses
from tests.smart_fork.relatives import lineage

SAID = ("add retry", "it retries", "and the docs", "docs are there")


@pytest.fixture
def handed(no_waiting, programs, monkeypatch):
    processes = FakeProcesses()
    monkeypatch.setattr("smart_fork.forking.world.SystemProcesses", lambda: processes)

    def fork(parent: str, agent: str, **more: object) -> str:
        options = Options("go on", place="process", brief=False)
        return str(fork_session(parent, options, as_agent=agent, **more).new_session_id)

    return fork


def told(session_id: str) -> list[tuple[int, str, str]]:
    return [(one["depth"], one["agent_type"], one["session_id"]) for one in lineage(session_id)["sessions"]]


@pytest.fixture
def family(world, shop, handed):
    """A session, it as another agent's, and that one handed back."""
    first = world.claude(shop, *SAID)
    second = handed(first, "codex", at=1)
    return first, second, handed(second, "claude")


def test_whoever_of_a_family_is_asked_tells_of_all_agents_sessions(family):
    first, second, third = family
    expected = [(0, "claude", first), (1, "codex", second), (2, "claude", third)]

    assert [expected] * 3 == [told(one) for one in family]


def test_it_tells_where_each_was_handed_over_and_how_to_get_back(family):
    first, second, _ = family

    members = {one["session_id"]: one for one in lineage(second)["sessions"]}

    left = members[second]["left_parent_at"]
    assert (1, "it retries") == (left["message"], left["text"])
    assert f"claude --resume {first}" in lineage(second)["return_command"]
    assert [False] * 3 == [one["log_gone"] for one in members.values()]


def test_a_register_that_is_lost_takes_no_family_with_it(family):
    first, second, third = family
    with Registry() as registry:
        path = registry.path
    path.unlink()

    assert [(0, "claude", first), (1, "codex", second), (2, "claude", third)] == told(first)


def test_without_any_note_a_session_says_itself_from_where_it_is(family):
    first, second, _ = family
    shutil.rmtree(state_home())

    assert [(0, "claude", first), (1, "codex", second)] == told(second)[:2]


def test_a_note_that_is_none_is_passed_over(family):
    first = family[0]
    for name, text in (
        ("a", "not json"),
        ("b", "[]"),
        ("c", '{"agent": 1}'),
        ("d", '{"agent":"x","source_agent":"y","source_session_id":"z"}'),
    ):
        (state_home() / "handovers" / name).write_text(text)

    assert 3 == len(told(first))


def test_the_tree_names_the_agents_where_there_are_several(family, run, world, shop):  # noqa: F811
    alone = world.claude(shop, "something else", "done")

    said, other = run("lineage", family[0]).out, run("lineage", alone).out

    assert "Claude Code, 20" in said
    assert "Codex, 20" in said
    assert "Claude Code" not in other


def test_a_cut_says_which_sessions_were_told_of_what_it_takes_out(family):
    first, second, third = family

    done = cut(Request(first, "1"))

    said = [one for one in done.remains if "which was told of this one" in one]
    assert [f"session {second} of Codex", f"session {third} of Claude Code"] == [one.partition(",")[0] for one in said]
