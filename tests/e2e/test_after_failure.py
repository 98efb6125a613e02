"""The real agents put before their model what our hook says of a command that failed."""

from __future__ import annotations

import json

import pytest

from tests.e2e.agents import Machine
from tests.e2e.model_server import Answer, Call, Protocol, Say
from tests.e2e.scenario import each_agent, unlike_any_other
from tests.e2e.services import Service

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine-with-recall")]


def ran(agent: Protocol, command: str, then: Answer) -> Answer:
    """The model runs a command."""
    name, given = ("Bash", {"command": command}) if agent == "claude" else ("exec_command", {"cmd": command})
    return Call("", name, given, then)


@each_agent(thorough="claude")
def test_after_a_failed_command_the_model_is_told_once_what_ended_the_error(
    told: Machine, recall: Service, agent: Protocol
):
    tool = told.project / f"{agent}-tool"
    tool.write_text(
        f"#!/bin/sh\n[ -e {agent}-backend ] && exit 0\necho 'error: {agent}Backend refused the handshake'\nexit 3\n"
    )
    tool.chmod(0o755)
    how = ("-p", "--allowedTools", "Bash", "--") if agent == "claude" else ("exec",)
    asked, again = unlike_any_other("Test the widget"), unlike_any_other("Test it once more")
    failing, install = f"./{tool.name}", f"cp {agent}-tool {agent}-backend"
    told.model.when(asked, ran(agent, failing, ran(agent, install, ran(agent, failing, Say("It is well.")))))
    told.run(told.programs / agent, *how, asked)
    told.smart_fork("find", "widget", "--include-automated", "--json")
    (told.project / f"{agent}-backend").unlink()
    told.model.when(again, ran(agent, failing, ran(agent, failing, Say("It fails."))))

    told.run(told.programs / agent, *how, again)

    requests = [json.dumps(one.body) for one in told.model.requests if again in json.dumps(one.body)]
    assert 1 == requests[-1].count("met this error until: "), "of two failures"
    assert f"run {install}" in requests[-1]
