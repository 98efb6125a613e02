"""What an agent offers its model of ours, in its first requests."""

from __future__ import annotations

from tests.e2e.agents import Machine
from tests.e2e.model_server import Protocol, Request
from tests.e2e.scenario import unlike_any_other
from tests.e2e.terminals import wait_until


def say(machine: Machine, agent: Protocol, prompt: str) -> Request:
    """What the model is sent of a prompt in a new session. Codex waits a second for its servers, so there it is said again."""
    if agent == "claude":
        machine.claude("-p", prompt)
        return machine.model.wait_for(lambda request: prompt in request.last_prompt)
    terminal = machine.agent_interactive(agent)
    terminal.choose("Hooks need review", "2")
    for _ in range(10):
        again = unlike_any_other(prompt)
        terminal.type(again)
        heard = machine.model.wait_for(lambda request, said=again: said in request.last_prompt)
        wait_until(lambda said=again: machine.find_log(agent, f"Noted: {said}"[:67]), "the answer")
        if ours(heard):
            break
    return heard


def ours(request: Request) -> set[str]:
    """Our tools, as the model is offered them."""
    return {name.rpartition("__")[2].rpartition("/")[2] for name in request.tools if "smart" in name.partition("/")[0]}
