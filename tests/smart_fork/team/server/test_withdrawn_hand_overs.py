"""A withdrawal reaches everything that a teammate made from a pulled session: hand-overs, their copies, native copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from smart_fork.agents.log_readers import READERS
from tests.smart_fork.forks import HELP
from tests.smart_fork.team.server.test_two_people import go_on, said, session_of
from tests.smart_fork.team.server.test_withdrawal import (
    LEFT,
    OWN,
    OWN_ANSWER,
    REDACTED,
    SAID,
    SECRET,
    TOKEN,
    having,
    writing,
)
from tests.smart_fork.world import Did, add_program
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.slow

AS = ("qwen", "gemini", "copilot")


@pytest.fixture
def pushed(alice, bob, request) -> tuple[str, str, Path]:
    """Push a session of Alice, and let Bob fork and continue it. Return the agent, her session, and his log."""
    agent = getattr(request, "param", "claude")
    for name in AS:
        add_program(bob.home / "bin", name, HELP[name])
    shared = alice.team("push", session_of(alice, agent, *SAID), "--public", "--yes")["session_id"]
    fork = Path(bob.team("fork", shared)["files"][0])
    go_on(bob, fork, agent, OWN, OWN_ANSWER)
    return agent, shared, fork


def handed_over(machine, agent: str, log: Path, to: str, *more: str) -> Path:
    """Hand a session over to another agent on a machine, and return the log."""
    with machine.here():
        session_id = READERS[agent].id_of(log)
    return Path(machine.do("branch", session_id, "--as", to, *more, "--json").json["path"])


@pytest.mark.parametrize("pushed", ["claude", pytest.param("codex", marks=pytest.mark.thorough)], indirect=True)
@pytest.mark.parametrize("to", thorough_except_first(AS))
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


@pytest.mark.parametrize("how", thorough_except_first(["cut", "deleted", "forgotten"]))
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


#: Where a token is said that its owner masks later: what is said there, and what a hand-over has of it then.
MASKED_LATER = {
    "prompt": ([f"> use token={TOKEN} in REPOSITORY/up.py", "Done."], f"use token={REDACTED} in /"),
    "answer": (["> and the docs", f'I use\n\ntoken={TOKEN} for\nthe "docs".'], f"token={REDACTED} for\nthe "),
    "call": (["> log in", Did("exec_command", {"cmd": f"login --token={TOKEN}"}, "hello"), "Done."], f"={REDACTED}"),
    "output": (
        ["> look", Did("exec_command", {"cmd": "cat it"}, f"see token={TOKEN} there"), "Done."],
        f"={REDACTED} ",
    ),
}


AGENTS = (("claude", "codex"), ("codex", "claude"), ("claude", "qwen"))


def with_token(alice, agent: str, where: str) -> str:
    """Push a session with a token that Alice first allows and then forbids."""
    allowed = alice.home / ".smart-fork/config.toml"
    allowed.write_text(f'[team]\nallow = ["{TOKEN}"]\n')
    steps = ["> add retry", "It retries.", *MASKED_LATER[where][0], "> and more", "There is more."]
    with alice.here():
        steps = [one.replace("REPOSITORY", str(alice.repository)) if isinstance(one, str) else one for one in steps]
        hers = alice.world.worked(agent, alice.repository, *steps)
    shared = alice.team("push", hers, "--public", "--yes")["session_id"]
    allowed.unlink()
    return shared


def told_of(bob, agent: str, shared: str, how: str, to: str) -> Path:
    """Hand a shared session or Bob's fork of it over to another agent, and return the log."""
    add_program(bob.home / "bin", "qwen", HELP["qwen"])
    if how == "by the team":
        return Path(bob.team("fork", shared, "--platform", to)["files"][0])
    fork = Path(bob.team("fork", shared)["files"][0])
    return handed_over(bob, agent, fork, to, *(["--unmasked"] if how == "unmasked" else []))


@pytest.mark.parametrize(
    ("how", "where", "agents"),
    thorough_except_first(
        [
            (how, where, agents)
            for agents in AGENTS
            for where in MASKED_LATER
            for how in ("by the team", "masked", "unmasked")
        ],
        3,
    ),
)
def test_a_hand_over_keeps_each_message_whose_secret_its_owner_masks_later(alice, bob, how, where, agents):
    agent, to = agents
    shared = with_token(alice, agent, where)
    log = told_of(bob, agent, shared, how, to)
    before = [text.replace(TOKEN, REDACTED) for text in said(to, log)]
    alice.team("excise", "cut", "--secrets", shared, "--yes")
    bob.team("sync")

    assert [] == having(bob, TOKEN)
    assert before == said(to, log)
    assert any(MASKED_LATER[where][1] in text for text in before)


@pytest.mark.parametrize(
    ("where", "word"),
    thorough_except_first([("prompt", "kiwi"), ("prompt", TOKEN), ("answer", "kiwi"), ("output", TOKEN)], 2),
)
def test_a_hand_over_loses_what_was_not_known_to_be_secret_when_it_was_made(alice, bob, where, word):
    shared = with_token(alice, "codex", where)
    log = told_of(bob, "codex", shared, "by the team", "claude")
    log.write_text(log.read_text().replace(REDACTED, word))
    bob.do("index", "run", "--no-vectors")
    alice.team("excise", "cut", "--secrets", shared, "--yes")
    bob.team("sync")

    assert [] == having(bob, word)
    assert "There is more." == said("claude", log)[-1]
