"""A withdrawal reaches everything that a teammate has made of what he pulled: hand-overs, their copies, native copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from smart_fork.agents import READERS
from tests.cases import first
from tests.smart_fork.forks import HELP
from tests.smart_fork.teamserver.test_two_people import go_on, said, session_of
from tests.smart_fork.teamserver.test_withdrawal import LEFT, OWN, OWN_ANSWER, SAID, SECRET, having, writing
from tests.smart_fork.world import add_program

AS = ("qwen", "gemini", "copilot")


@pytest.fixture
def pushed(alice, bob, request) -> tuple[str, str, Path]:
    """What she has pushed, and his fork of it, in which he went on: the agent, her session, his log."""
    agent = getattr(request, "param", "claude")
    for name in AS:
        add_program(bob.home / "bin", name, HELP[name])
    shared = alice.team("push", session_of(alice, agent, *SAID), "--public", "--yes")["session_id"]
    fork = Path(bob.team("fork", shared)["files"][0])
    go_on(bob, fork, agent, OWN, OWN_ANSWER)
    return agent, shared, fork


def handed_over(machine, agent: str, log: Path, to: str) -> Path:
    """A session handed over to another agent on a machine: the log."""
    with machine.here():
        session_id = READERS[agent].id_of(log)
    return Path(machine.do("branch", session_id, "--as", to, "--json").json["path"])


@pytest.mark.parametrize("pushed", ["claude", pytest.param("codex", marks=pytest.mark.thorough)], indirect=True)
@first("to", AS)
def test_hand_overs_at_any_depth_lose_it_and_keep_what_is_left(alice, bob, pushed, to):
    agent, shared, fork = pushed
    told = handed_over(bob, agent, fork, to)
    again = handed_over(bob, to, told, "codex" if agent == "claude" else "claude")
    with bob.here():
        copy = bob.do("branch", READERS[to].id_of(told), "--json").json["path"]
    bob.do("index", "run", "--no-vectors")
    assert len(having(bob)) > 4
    alice.team("excise", "cut", "3-4", shared, "--yes")
    taken = bob.team("sync")

    assert {str(fork), str(told), str(again), copy} <= set(taken["changed"])
    assert {} == taken["put_off"]
    assert [] == having(bob)
    assert [*LEFT, OWN, OWN_ANSWER] == said(to, told) == said(to, copy)
    assert SECRET not in str(bob.do("find", SECRET, "--json").json["results"])


@first("how", ["cut", "deleted", "forgotten"])
def test_a_hand_over_of_a_fork_that_is_cut_or_gone_loses_it_as_well(alice, bob, pushed, how):
    agent, shared, fork = pushed
    told = handed_over(bob, agent, fork, "qwen")
    if how == "cut":
        assert 0 == bob.do("excise", "cut", "2-3", str(fork), "--yes", "--force").code
    elif how == "deleted":
        fork.unlink()
    else:
        assert 0 == bob.do("forget", fork.stem, "--yes").code
    alice.team("excise", "cut", "3-4", shared, "--yes")
    bob.team("sync")

    assert [] == having(bob)
    assert [*LEFT, OWN, OWN_ANSWER] == said("qwen", told)


def test_a_hand_over_that_is_open_is_named_until_it_is_cut(alice, bob, pushed):
    agent, shared, fork = pushed
    told = handed_over(bob, agent, fork, "qwen")
    alice.team("excise", "cut", "3-4", shared, "--yes")
    with writing(told):
        taken = bob.team("sync")
        verified = [bob.do("excise", "verify", str(log)).code for log in (fork, told)]

    assert {str(fork), str(told)} == set(taken["put_off"])
    assert [1, 1] == verified
    assert {str(fork), str(told)} == set(bob.team("sync")["changed"])
    assert [] == having(bob)
    assert [0, 0] == [bob.do("excise", "verify", str(log)).code for log in (fork, told)]


def test_a_copy_that_only_the_agent_knows_of_loses_it(alice, bob, pushed):
    _, shared, fork = pushed
    with bob.here():
        copy = bob.world.fork_claude(fork.stem, bob.repository, "in blue", "blue")
    alice.team("excise", "cut", "3-4", shared, "--yes")
    bob.team("sync")

    assert [] == having(bob)
    assert [*LEFT, OWN, OWN_ANSWER, "in blue", "blue"] == said("claude", bob.world.log_of(copy))


def test_what_was_named_after_it_loses_the_name(alice, bob, team, pushed):
    agent, shared, fork = pushed
    with fork.open("a") as log:
        log.write(f'{{"type":"ai-title","aiTitle":"About {SECRET}","sessionId":"{fork.stem}"}}\n')
    logs = [handed_over(bob, agent, fork, to) for to in AS]
    alice.team("excise", "cut", "3-4", shared, "--yes")
    bob.team("sync")

    assert [] == having(bob)
    assert all([*LEFT, OWN, OWN_ANSWER] == said(to, log) for to, log in zip(AS, logs, strict=True))
