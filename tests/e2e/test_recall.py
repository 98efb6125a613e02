"""The real agents put before their model what our hook says of a new session's first prompt, once, and only while it may."""

from __future__ import annotations

import json

import pytest

from tests.e2e.agents import Machine
from tests.e2e.model_server import Protocol, Request
from tests.e2e.recall_fixtures import ASKED, SETTINGS, machine_with_hooks, service_of_hooks
from tests.e2e.scenario import each_agent, unlike_any_other
from tests.e2e.services import Service
from tests.e2e.terminals import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine-with-recall")]


def first_request(machine: Machine, agent: Protocol, prompt: str) -> Request:
    """What the model is asked first in a new session."""
    machine.run(machine.programs / agent, "-p" if agent == "claude" else "exec", prompt)
    return machine.model.wait_for_prompt(prompt)


def lines(request: Request) -> int:
    return json.dumps(request.body).count("</smart-fork-recall>")


@each_agent(thorough="claude")
def test_the_first_request_has_the_line_and_the_second_prompt_adds_none(
    told: Machine, recall: Service, agent: Protocol
):
    first, second = unlike_any_other(ASKED), unlike_any_other("Go on with it")
    terminal = told.agent_interactive(agent, "--", first)
    request = told.model.wait_for_prompt(first)
    wait_until(lambda: told.find_log(agent, f"Noted: {first[:60]}"), "the first answer")
    terminal.type(second)
    again = told.model.wait_for_prompt(second)

    assert (1, 1) == (lines(request), lines(again)), "what stands before the first prompt stays there"
    assert "To fork it, call smart_fork" in json.dumps(request.body)
    log = told.find_log(agent, f"Noted: {first[:60]}")
    shown = told.smart_fork("show", log.session_id, "--json")
    assert "smart-fork-recall" not in shown.stdout
    terminal.leave("/exit" if agent == "claude" else "/quit")


@pytest.mark.thorough  # without an agent: tests of the service
@each_agent()
def test_a_first_prompt_that_nothing_fits_adds_none(told: Machine, recall: Service, agent: Protocol):
    assert 0 == lines(first_request(told, agent, unlike_any_other("What is the capital of Mongolia?")))


@pytest.mark.thorough  # the hook without an agent: service/test_recall.py
def test_without_the_service_there_is_none(told: Machine, recall: Service):
    with recall.killed():
        assert [0, 0] == [lines(first_request(told, agent, unlike_any_other(ASKED))) for agent in SETTINGS]
    assert [1, 1] == [lines(first_request(told, agent, unlike_any_other(ASKED))) for agent in SETTINGS]


@pytest.mark.thorough  # as other hooks
def test_switched_off_there_is_none_and_what_setup_put_in_is_taken_out_to_the_byte(programs, machines):
    event = {"claude": "PostToolUseFailure", "codex": "PostToolUse"}
    with machine_with_hooks(programs, machines) as machine, service_of_hooks(machine):
        for agent, settings in SETTINGS.items():
            assert event[agent] in json.loads((machine.home / settings).read_text())["hooks"]

        for agent in SETTINGS:
            machine.smart_fork("setup", "--no-recall", "--agent", agent)

        assert [0, 0] == [lines(first_request(machine, agent, unlike_any_other(ASKED))) for agent in SETTINGS]
        machine.smart_fork("setup", "--remove", "--yes", "--json")
        assert not any((machine.home / settings).exists() for settings in SETTINGS.values())
