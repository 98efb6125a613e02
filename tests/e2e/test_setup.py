"""`smart-fork setup` beside the real agents: they have the server, the skill and the hooks, and then no longer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import Machine, machine_in
from tests.e2e.logs import Json
from tests.e2e.model_server import Protocol
from tests.e2e.offered_tools import ours, say
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import EXCHANGES, each_agent, unlike_any_other

pytestmark = pytest.mark.e2e
WITHOUT_SERVICE = "--no-service"


@pytest.fixture(scope="module")
def bare(programs, machines) -> Iterator[Machine]:
    """A machine whose agents have worked, and know nothing of smart-fork."""
    with machine_in(cache_folder(), programs) as fresh:
        machines.append(fresh)
        # Claude Code waits for servers, however busy the machine is.
        fresh.env |= {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "60000", "COLUMNS": "80"}
        for agent in ("claude", "codex"):
            fresh.session_of_before(agent, *EXCHANGES)
        # No preloader: agents give our server none of the variables that would switch it off.
        (fresh.home / ".smart-fork").mkdir(mode=0o700)
        (fresh.home / ".smart-fork" / "preload").touch()
        yield fresh


@pytest.fixture(scope="class")
def set_up(bare: Machine) -> Iterator[Json]:
    """What setting up has told; undone by the last of the tests, if it is run."""
    told: Json = json.loads(bare.smart_fork("setup", "--yes", "--json", WITHOUT_SERVICE).stdout)
    yield told
    bare.close_terminals()
    bare.smart_fork("setup", "--remove", check=False)


class TestSetUp:
    def test_each_agent_is_tried_and_finds_its_newest_session(self, set_up: Json):
        """The registered command is started as the agent starts it, with the environment that it gives."""
        assert ["claude", "codex"] == [trial["agent"] for trial in set_up["tried"]]
        for trial in set_up["tried"]:
            assert trial["ok"], trial
            assert trial["asked"] == trial["found"]
            assert trial["tools"] >= 7

    def test_the_agents_themselves_list_it_as_connected(self, bare: Machine, set_up: Json):
        (line,) = [line for line in bare.claude("mcp", "list").stdout.splitlines() if line.startswith("smart-fork:")]
        registered = json.loads(bare.codex("mcp", "get", "smart-fork", "--json").stdout)

        assert "Connected" in line
        started = registered["transport"]
        assert Path(set_up["program"]).parent == Path(started["command"]).parent
        assert ["-I", "-m", "smart_fork", "mcp"] == started["args"]
        assert (30.0, 300.0) == (registered["startup_timeout_sec"], registered["tool_timeout_sec"])

    @pytest.mark.thorough  # as by the plugin
    @each_agent()
    def test_the_model_is_given_the_tools_and_the_skill(self, bare: Machine, set_up: Json, agent: Protocol):
        first = say(bare, agent, unlike_any_other("What did we do last?"))

        assert {"find_sessions", "smart_fork", "read_session"} <= ours(first)
        assert "past-sessions" in json.dumps(first.body)

    @pytest.mark.thorough
    def test_claude_code_may_write_its_settings_meanwhile_and_removing_takes_only_ours(
        self, bare: Machine, set_up: Json
    ):
        """The last of these: no agent knows of it any more."""
        path = bare.home / ".claude.json"
        before = json.loads(path.read_text())
        bare.claude("mcp", "add-json", "-s", "user", "mine", '{"command": "true"}')

        removed = bare.smart_fork("setup", "--remove")

        after = json.loads(path.read_text())
        assert "has changed since" in " ".join(removed.stderr.split())
        assert {"mine"} == set(after.pop("mcpServers"))
        assert before.get("projects") == after["projects"]
        nothing_is_left(bare)
        bare.claude("mcp", "remove", "-s", "user", "mine")


def nothing_is_left(bare: Machine) -> None:
    """Neither agent knows of it."""
    assert "smart-fork" not in bare.claude("mcp", "list").stdout
    assert "smart-fork" not in bare.codex("mcp", "list").stdout
    for left in (".claude/skills", ".agents", ".codex/hooks.json", ".claude/settings.json"):
        assert not (bare.home / left).exists(), left


@pytest.mark.thorough
def test_removing_gives_back_the_settings_to_the_byte_where_no_agent_has_written_meanwhile(bare: Machine):
    settings = [bare.home / ".codex/config.toml", bare.home / ".claude.json"]
    before = [path.read_bytes() for path in settings]
    bare.smart_fork("setup", "--yes", WITHOUT_SERVICE)
    bare.smart_fork("setup", "--remove")

    assert before == [path.read_bytes() for path in settings]
    nothing_is_left(bare)
