"""Forks that Claude Code keeps in its own background, by its own verbs: ``--in claude``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from smart_fork.workers.registry import Registry
from tests.e2e.agents import Machine, machine_in
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import Call, Say
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import CONVERSATION, EXCHANGES, assert_forked, heard, run_fork, unlike_any_other
from tests.e2e.terminals import wait_until

pytestmark = pytest.mark.e2e
#: Without it some versions decide alone what they may do.
ASKS = {"permissions": {"defaultMode": "default"}}


@pytest.fixture(scope="module")
def owner(claude_program: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine with a Claude Code that has background sessions, and our hooks in it."""
    with machine_in(cache_folder(), claude_program) as fresh:
        machines.append(fresh)
        (fresh.home / ".claude/settings.json").write_text(json.dumps(ASKS))
        fresh.set_up("claude")
        yield fresh


@pytest.fixture
def source(owner: Machine) -> Iterator[Log]:
    log = owner.session_of_before("claude", *EXCHANGES)
    before = log.sha256
    yield log
    assert before == log.sha256


def sessions(machine: Machine) -> dict[str, Json]:
    """What Claude Code itself lists."""
    return {one["id"]: one for one in json.loads(machine.claude("agents", "--json", "--all").stdout)}


def told(machine: Machine, *words: str) -> Json:
    answer: Json = json.loads(machine.smart_fork(words[0], "--json", *words[1:]).stdout)
    return answer


def test_a_fork_is_a_session_in_the_background_of_its_own_agent(owner: Machine, source: Log):
    """It is in the agent's list, hears a message as the same session, and is stopped there."""
    prompt, more = unlike_any_other("fix the race"), unlike_any_other("and the tests")

    fork = run_fork(owner, source, prompt, "--in", "claude", "--name", "racer")

    assert_forked(owner, "claude", source, fork, prompt)
    row = sessions(owner)[fork["terminal_id"]]
    assert ("claude", fork["new_session_id"], "racer", "background") == (
        fork["place"], row["sessionId"], row["name"], row["kind"],
    )  # fmt: skip
    assert f"claude attach {row['id']}" == fork["attach"]
    (worker,) = told(owner, "wait", "racer")["workers"]
    assert ("idle", f"Noted: {prompt[:60]}") == (worker["status"], worker["last_words"])
    with Registry(owner.home / ".smart-fork/workers.db") as registry:  # our hooks know whose they are
        wait_until(lambda: registry.get(fork["worker_id"]).status == "idle", "the hook of the answer")

    answer = told(owner, "message", "racer", more)

    assert ("resumed", fork["new_session_id"]) == (answer["how"], answer["session_id"])
    assert (prompt, more) == tuple(one.text for one in heard(owner, more).said if one.role == "user")[-2:]
    assert [fork["worker_id"]] == [one["worker_id"] for one in told(owner, "active")["workers"]]
    assert [True] == [one["closed"] for one in told(owner, "close", row["id"])["workers"]]
    assert ("stopped", 0) == (sessions(owner)[row["id"]]["state"], told(owner, "active")["count"])


def test_one_that_asks_says_so_and_is_answered_where_it_is_open(owner: Machine, source: Log):
    prompt = unlike_any_other("make a file")
    touch = {"command": "touch made && curl http://127.0.0.1:9", "description": "x"}
    owner.model.when(prompt, Call("", "Bash", touch, Say("It is made.")))
    fork = run_fork(owner, source, prompt, "--in", "claude")

    (worker,) = told(owner, "wait", fork["worker_id"])["workers"]
    refused = owner.smart_fork("message", fork["worker_id"], "go on", check=False)

    assert "waiting" == worker["status"]
    assert worker["waiting_for"]
    assert fork["attach"] in refused.stderr
    assert not (owner.project / "made").exists()
    told(owner, "close", fork["worker_id"])


@pytest.mark.thorough  # three more sessions of the program
@pytest.mark.parametrize("prompt", ["/clear all of it", "doctor", "--help"])
def test_what_it_would_take_for_a_command_are_words(owner: Machine, source: Log, prompt: str):
    fork = run_fork(owner, source, prompt, "--in", "claude", "--no-brief")

    request = heard(owner, f"Prompt: {prompt}")
    assert [*CONVERSATION] == request.said[: len(CONVERSATION)]
    told(owner, "close", fork["worker_id"])


@pytest.mark.thorough  # as a fork does
def test_a_copy_up_to_a_message_and_a_new_session_run_there_too(owner: Machine, source: Log):
    prompt, begun = unlike_any_other("another way"), unlike_any_other("begin with the docs")

    fork = run_fork(owner, source, prompt, "--in", "claude", "--at", "1", "--worktree")
    new = told(owner, "new", "--in", "claude", begun)

    assert_forked(owner, "claude", source, fork, prompt, said_before=CONVERSATION[:2])
    assert {fork["terminal_id"], new["terminal_id"]} <= sessions(owner).keys()
    assert [begun] == [one.text for one in heard(owner, begun).said]
    told(owner, "close", fork["worker_id"], new["worker_id"])
