"""The real agents put before their model what our hook says of a new session's first prompt, once, and only while it may."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.agents import SMART_FORK, Machine, machine_in
from tests.e2e.model_server import Protocol, Request
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import EXCHANGES, unlike_any_other
from tests.e2e.services import Service, service_on
from tests.e2e.terminals import wait_until

pytestmark = pytest.mark.e2e
agents = pytest.mark.parametrize("agent", ["claude", "codex"])
SETTINGS: dict[Protocol, str] = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json"}
ASKED = EXCHANGES[0][0]


@pytest.fixture(scope="module")
def told(programs, machines) -> Iterator[Machine]:
    """A machine whose agents have worked, with hooks that a person has trusted in Codex, and given time."""
    with machine_in(cache_folder(), programs) as fresh:
        machines.append(fresh)
        fresh.know_smart_fork()
        fresh.env["SMART_FORK_RECALL_MS"] = "60000"
        fresh.session_of_before("claude", *EXCHANGES)
        fresh.session_of_a_person("codex", ("Paint the chart in other colours", "It is painted."))
        done = fresh.smart_fork("setup", "--yes", "--json", "--no-service", "--no-skill", "--recall")
        assert {"recall"} <= {step["step"] for step in json.loads(done.stdout)["steps"]}
        for settings in SETTINGS.values():  # the agents wait for hooks, however busy the machine is
            path = fresh.home / settings
            path.write_text(path.read_text().replace('"timeout": 3', '"timeout": 100'))
        terminal = fresh.agent_interactive("codex")
        terminal.choose("Hooks need review", "2")
        wait_until(lambda: "trusted_hash" in (fresh.home / ".codex/config.toml").read_text(), "Codex to trust them")
        fresh.close_terminals()
        yield fresh


@pytest.fixture(scope="module")
def served(told: Machine) -> Iterator[Service]:
    with service_on(told) as service:
        told.run(*SMART_FORK, "find", ASKED, "--json")
        yield service


def first_request(machine: Machine, agent: Protocol, prompt: str) -> Request:
    """What the model is asked first in a new session."""
    machine.run(machine.programs / agent, "-p" if agent == "claude" else "exec", prompt)
    return machine.model.wait_for_prompt(prompt)


def lines(request: Request) -> int:
    return json.dumps(request.body).count("</smart-fork-recall>")


@agents
def test_the_first_request_has_the_line_and_the_second_prompt_adds_none(
    told: Machine, served: Service, agent: Protocol
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


@agents
def test_a_first_prompt_that_nothing_fits_adds_none(told: Machine, served: Service, agent: Protocol):
    assert 0 == lines(first_request(told, agent, unlike_any_other("What is the capital of Mongolia?")))


def test_without_the_service_and_switched_off_there_is_none(told: Machine, served: Service):
    both: list[Protocol] = ["claude", "codex"]
    with served.killed():
        assert [0, 0] == [lines(first_request(told, agent, unlike_any_other(ASKED))) for agent in both]
    assert [1, 1] == [lines(first_request(told, agent, unlike_any_other(ASKED))) for agent in both]
    for agent in both:
        told.smart_fork("setup", "--no-recall", "--agent", agent)
    assert [0, 0] == [lines(first_request(told, agent, unlike_any_other(ASKED))) for agent in both]
