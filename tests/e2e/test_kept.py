"""Sessions that an agent has deleted: the real programs fork them from our copies."""

from __future__ import annotations

import json

import pytest

from tests.e2e.agents import Machine
from tests.e2e.model_server import Message, Protocol
from tests.e2e.scenario import ANSWER, CONVERSATION, EXCHANGES, assert_forked, each_agent, run_fork, unlike_any_other
from tests.e2e.terminals import wait_until
from tests.support.processes import command_line

pytestmark = pytest.mark.e2e
KEEP = {"SMART_FORK_KEEP_TRANSCRIPTS": "true"}


@each_agent(thorough="claude")
def test_deleted_sessions_are_shown_and_forked_again(machine: Machine, agent: Protocol):
    """D17: and the model is sent what was said in them, also in a fork of which Codex writes down only what is new."""
    machine.know_smart_fork()
    log = machine.session_of_before(agent, *EXCHANGES)
    first, second = unlike_any_other("Now do the same for the downloader"), unlike_any_other("Second step")
    data = log.path.read_bytes()
    machine.smart_fork("index", "run", "--no-vectors", env=KEEP)
    log.path.unlink()
    shown = json.loads(machine.smart_fork("show", log.session_id, "--json").stdout)
    assert ANSWER in [message["text"] for message in shown["messages"]]

    child = assert_forked(machine, agent, log, run_fork(machine, log, first, "--in", "process"), first)
    assert data == log.path.read_bytes()

    wait_until(lambda: not any(first in " ".join(command_line(one)) for one in machine.processes()), "its end")
    machine.smart_fork("index", "run", "--no-vectors", env=KEEP)
    data = child.path.read_bytes()
    log.path.unlink()
    child.path.unlink()
    fork = run_fork(machine, child, second, "--in", "process")

    said = [*CONVERSATION, Message("user", first), Message("assistant", f"Noted: {first[:60]}")]
    assert_forked(machine, agent, child, fork, second, said_before=said)
    assert data == child.path.read_bytes()
