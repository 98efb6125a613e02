"""The service goes away and comes back while a real agent is in a conversation with it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import SERVER, Machine, machine_in
from tests.e2e.model_server import Call, Protocol, Request, Result, Say
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import EXCHANGES, each_agent, unlike_any_other
from tests.e2e.services import Service, service_on
from tests.e2e.terminals import Terminal, wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def connected(programs: Path, machines: list[Machine]) -> Iterator[tuple[Machine, Service]]:
    """A machine, and the service that its agents know."""
    with machine_in(cache_folder(), programs) as machine:
        machines.append(machine)
        with service_on(machine) as service:
            machine.add_service(service.url, service.token)
            yield machine, service


class Conversation:
    """An agent in a terminal, whom a person asks again and again what sessions there are."""

    def __init__(self, machine: Machine, agent: Protocol, project: Path) -> None:
        self._machine, self._agent, self._project = machine, agent, project
        self.terminal: Terminal | None = None

    def ask(self) -> Result:
        """What the model is given."""
        question, done = unlike_any_other("Which sessions are there?"), unlike_any_other("These are all.")
        self._machine.model.when(question, Call(SERVER, "list_sessions", {"agent_type": self._agent}, Say(done)))
        if self.terminal is None:
            allowed = ("--allowedTools", f"mcp__{SERVER}") if self._agent == "claude" else ()
            self.terminal = self._machine.agent_interactive(self._agent, *allowed, "--", question, cwd=self._project)
        else:
            self.terminal.type(question)

        def answered(request: Request) -> bool:
            return request.last_prompt == question and bool(request.our_results)

        (result,) = self._machine.model.wait_for(answered).our_results
        wait_until(lambda: self._machine.find_log(self._agent, done), "the end of the turn")
        return result


@pytest.mark.thorough  # without an agent: tests of front
@each_agent()
def test_an_agent_goes_on_with_the_service_when_that_was_killed_and_is_there_again(
    connected: tuple[Machine, Service], agent: Protocol
):
    """F-070, F-210: what it asks meanwhile fails, and once more where it keeps the connection; afterwards it needs neither a person nor a new conversation."""
    machine, service = connected
    project = machine.repository(f"shop-{uuid.uuid4().hex[:6]}")
    session = machine.session_of_before(agent, *EXCHANGES, cwd=project).session_id
    conversation, url = Conversation(machine, agent, project), service.url

    first = conversation.ask()
    with service.killed():
        meanwhile = conversation.ask()
    conversation.ask()  # may still be sent on the connection of before
    afterwards = [conversation.ask() for _ in range(2)]

    assert url == service.url
    assert session not in meanwhile.text
    for answer in (first, *afterwards):  # it still says which project it works in
        assert session in [listed["session_id"] for listed in answer.structured["sessions"]]
    assert conversation.terminal is not None
    assert conversation.terminal.running, "it was one and the same all the time"
