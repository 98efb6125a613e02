"""The plugin in the real agents: installed from this repository, used, and taken out again."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import Machine, machine_in
from tests.e2e.logs import Json
from tests.e2e.model_server import Call, Protocol, Say
from tests.e2e.offered_tools import ours, say
from tests.e2e.programs import CHECKOUT, cache_folder
from tests.e2e.scenario import EXCHANGES, INTENT, unlike_any_other

pytestmark = pytest.mark.e2e
agents = pytest.mark.parametrize(
    "agent", ["claude", pytest.param("codex", marks=pytest.mark.thorough)], indirect=True, scope="class"
)
claude = pytest.mark.parametrize("agent", ["claude"], indirect=True, scope="class")
NAME = "smart-fork@smart-fork"
ADD: dict[Protocol, tuple[str, ...]] = {"claude": ("plugin", "install", NAME), "codex": ("plugin", "add", NAME)}
REMOVE: dict[Protocol, tuple[str, ...]] = {
    "claude": ("plugin", "uninstall", NAME),
    "codex": ("plugin", "remove", NAME),
}


@pytest.fixture(scope="module")
def plain(programs: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine with smart-fork on its PATH, which neither agent knows of."""
    with machine_in(cache_folder(), programs) as fresh:
        machines.append(fresh)
        fresh.allow_plugins()
        command = fresh.home / "bin" / "smart-fork"
        command.parent.mkdir()
        started = f'PYTHONPATH="{CHECKOUT}" HF_HUB_OFFLINE=1 exec "{sys.executable}" -m smart_fork "$@"'
        command.write_text(f"#!/bin/sh\n{started}\n")
        command.chmod(0o755)
        fresh.env["PATH"] = f"{command.parent}:{fresh.env['PATH']}"
        # Claude Code waits for servers, however busy the machine is.
        fresh.env |= {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "60000"}
        yield fresh


@pytest.fixture(scope="class")
def agent(request: pytest.FixtureRequest, plain: Machine) -> Iterator[Protocol]:
    """An agent that has the plugin. The last of its tests takes it out."""
    who: Protocol = request.param
    run(plain, who, "plugin", "marketplace", "add", str(CHECKOUT))
    run(plain, who, *ADD[who])
    yield who
    plain.close_terminals()


def run(machine: Machine, agent: Protocol, *args: str) -> str:
    return machine.run(machine.programs / agent, *args).stdout


def installed(machine: Machine, agent: Protocol) -> bool:
    told: Json | list[Json] = json.loads(run(machine, agent, "plugin", "list", "--json"))
    plugins = told if isinstance(told, list) else told["installed"]
    return any(NAME in (one.get("id"), one.get("pluginId")) for one in plugins)


@pytest.mark.parametrize("folder", [CHECKOUT, CHECKOUT / "plugin"], ids=["marketplace", "plugin"])
def test_claude_code_finds_nothing_to_complain_about(plain: Machine, folder: Path):
    assert "Validation passed" in plain.claude("plugin", "validate", "--strict", str(folder)).stdout


class TestInstalled:
    """Once for each agent; the last test takes it out."""

    @agents
    def test_an_agent_with_the_plugin_is_given_the_tools_and_the_skill(self, plain: Machine, agent: Protocol):
        """Claude Code, how many sessions came before as well."""
        if agent == "claude":
            plain.session_of_before("claude", *EXCHANGES)
            plain.smart_fork("index", "run", "--no-vectors")
        prompt = unlike_any_other("What did we do last?")

        first = say(plain, agent, prompt)

        assert {"find_sessions", "smart_fork", "read_session"} <= ours(first)
        body = json.dumps(first.body)
        assert "smart-fork:past-sessions" in body
        assert agent == "codex" or re.search(r"smart-fork: \d past sessions? of this repository", body)

    @pytest.mark.thorough
    @claude
    def test_the_command_asks_for_a_fork_and_may_search_unasked(self, plain: Machine, agent: Protocol):
        found = Call("plugin_smart-fork_smart-fork", "find_sessions", {"intent": INTENT}, Say("That is all."))
        task = unlike_any_other("Add retry to the downloader")
        plain.model.when(task, found)

        plain.claude("-p", f"/smart-fork:fork {task}")

        heard = plain.model.wait_for(lambda request: task in request.last_prompt and bool(request.our_results))
        assert "find_sessions" == heard.our_results[0].tool
        assert "results" in heard.our_results[0].structured

    @pytest.mark.thorough  # a rarer place
    @claude
    def test_without_smart_fork_on_the_path_a_session_begins_as_ever(self, plain: Machine, agent: Protocol):
        path = plain.env["PATH"].partition(":")[2]
        prompt = unlike_any_other("Hello")

        told = plain.run(plain.programs / "claude", "-p", prompt, env={"PATH": path})

        assert "Noted: Hello" in told.stdout
        first = plain.model.wait_for(lambda request: prompt in request.last_prompt)
        assert set() == ours(first)
        assert "hook" not in told.stderr

    @pytest.mark.thorough
    @agents
    def test_taken_out_again_nothing_of_it_is_left_in_the_agent(self, plain: Machine, agent: Protocol):
        run(plain, agent, *REMOVE[agent])
        assert not installed(plain, agent)

        prompt = unlike_any_other("Are you alone?")
        plain.claude("-p", prompt) if agent == "claude" else plain.codex("exec", prompt)

        first = plain.model.wait_for(lambda request: prompt in request.last_prompt)
        assert set() == ours(first)
        assert "past-sessions" not in json.dumps(first.body)
