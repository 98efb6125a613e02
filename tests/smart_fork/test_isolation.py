"""What agents start of us imports nothing of the directory that they work in, nor of their PYTHONPATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.cli.preload import client
from smart_fork.cli.setup import agent_hooks
from smart_fork.system import processes
from smart_fork.system.processes import Processes
from tests.support.mcp_process import McpProcess

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
#: Modules that are imported at the start of each Python, of nearly each program, and of ours.
NAMES = ("sitecustomize", "usercustomize", "json", "typing", "smart_fork", "indexer", "mcp")


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A folder with modules of the names that we import, which is the directory and on PYTHONPATH."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\nraise SystemExit(9)\n"
        )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), "."]))
    monkeypatch.setenv("PYTHONSTARTUP", str(folder / "json.py"))
    monkeypatch.setenv("PYTHONUSERBASE", str(folder))
    monkeypatch.chdir(folder)
    return folder


def ran(folder: Path) -> str:
    """The names of their modules that were run."""
    noted = folder.parent / "ran"
    return noted.read_text() if noted.exists() else ""


def registered(agent: str) -> list[str]:
    way = AGENTS.registration_of(agent)
    return [*way.argv(way.wanted(Processes.python("smart_fork", "mcp"), os.environ, None))]


def in_plugin() -> list[str]:
    server = json.loads((ROOT / "plugin/.mcp.json").read_text())["mcpServers"]["smart-fork"]
    return [server["command"], *server["args"]]


@pytest.mark.parametrize("of", ["claude", "opencode", "plugin"])
def test_a_server_that_an_agent_starts_runs_no_module_of_its_directory(hostile, of):
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    with McpProcess(in_plugin() if of == "plugin" else registered(of), cwd=hostile, env=env, new=True) as server:
        listed = server.call("list_workers")

    assert ([], "") == (listed["workers"], ran(hostile))


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_hook_runs_no_module_of_the_agent_s_directory(hostile, agent):
    body = json.dumps({"hook_event_name": "SessionStart", "session_id": "1", "cwd": str(hostile)})

    done = subprocess.run(["/bin/sh", "-c", agent_hooks.command(agent)], input=body, text=True, check=True)

    assert (0, "") == (done.returncode, ran(hostile))


def test_the_hook_of_the_plugin_runs_no_module_of_the_agent_s_directory(hostile):
    ((group,),) = json.loads((ROOT / "plugin/hooks/hooks.json").read_text())["hooks"].values()
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    subprocess.run(["/bin/sh", "-c", group["hooks"][0]["command"]], env=env, check=True)

    assert "" == ran(hostile)


def test_an_older_command_of_a_hook_runs_no_module_of_the_directory(hostile, monkeypatch):
    monkeypatch.delenv("PYTHONPATH")

    subprocess.run([sys.executable, "-P", "-m", "smart_fork.hooks", "claude"], input=b"{}", check=True)

    assert "" == ran(hostile)


def test_where_we_are_found_through_pythonpath_alone_it_is_read(monkeypatch):
    monkeypatch.setattr(processes, "_is_installed", lambda: False)

    assert "-P" == Processes.python("smart_fork")[1]


def test_whoever_was_started_isolated_shares_a_preloader_with_those_that_have_no_such_variables(hostile, monkeypatch):
    name = [sys.executable, "-I", "-c", "from smart_fork.cli.preload.client import code; print(code())"]
    told = subprocess.run(name, capture_output=True, text=True, check=True).stdout.strip()
    assert told != client.code()

    for variable in [one for one in os.environ if one.startswith("PYTHON")]:
        monkeypatch.delenv(variable)

    assert told == client.code()


@pytest.mark.parametrize(("variables", "option"), [({}, "-I"), ({"PYTHONPATH": "/x"}, "-P")])
def test_a_preloader_reads_the_variables_of_whoever_is_to_find_it(monkeypatch, tmp_path, variables, option):
    begun = []
    for variable in [one for one in os.environ if one.startswith("PYTHON")]:
        monkeypatch.delenv(variable)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path))
    monkeypatch.setenv("SMART_FORK_BACKGROUND", "1")
    monkeypatch.setattr(processes.Processes, "start", lambda _, command, **__: begun.append(command))

    client.start_preloader()

    assert [[sys.executable, option, "-m", "smart_fork.cli.preload.server"]] == begun
