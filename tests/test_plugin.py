"""What the plugin and the registries read of this repository says the same everywhere, and names what there is."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from smart_fork.server import Server

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "plugin"
#: The skill is written once; `smart-fork setup` installs it from the package.
SKILL, PACKAGED = PLUGIN / "skills/past-sessions/SKILL.md", ROOT / "smart_fork/cli/setup/skill/SKILL.md"


def read(path: str) -> dict:
    return json.loads((ROOT / path).read_text())


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def front_matter(path: Path) -> dict[str, str]:
    lines = path.read_text().split("---\n")[1].splitlines()
    return dict(line.split(": ", 1) for line in lines)


def test_the_version_is_the_same_for_all_who_read_it():
    server, plugin = read("server.json"), read("plugin/.claude-plugin/plugin.json")
    (package,) = server["packages"]
    pinned = re.findall(r"smart-fork==(\S+)", " ".join(read("plugin/.mcp.json")["mcpServers"]["smart-fork"]["args"]))

    assert {project()["version"]} == {plugin["version"], server["version"], package["version"], *pinned}


def test_the_registry_finds_its_marker_in_the_readme():
    """Whoever publishes a package under a name of the MCP registry proves by it that the package is theirs."""
    name = read("server.json")["name"]

    assert [name] == re.findall(r"<!-- mcp-name: (\S+) -->", (ROOT / "README.md").read_text())
    assert re.fullmatch(r"[a-z0-9.-]+/[a-z0-9-]+", name)


def test_what_the_registry_shows_is_the_package():
    server = read("server.json")

    assert project()["name"] == server["packages"][0]["identifier"]
    assert len(server["description"]) <= 100
    assert {server["repository"]["url"]} >= {project().get("urls", {}).get("Repository", server["repository"]["url"])}


def test_the_marketplace_offers_the_plugin_s_folder_alone():
    (offered,) = read(".claude-plugin/marketplace.json")["plugins"]

    assert PLUGIN == (ROOT / offered["source"]).resolve()
    assert read("plugin/.claude-plugin/plugin.json")["name"] == offered["name"]


def test_the_plugin_s_skill_is_the_one_that_setup_installs():
    assert PACKAGED.read_text() == SKILL.read_text()


def test_the_command_and_the_skill_name_tools_and_commands_that_there_are():
    import asyncio

    from smart_fork.cli.command_table import COMMANDS

    offered = asyncio.run(Server().list_tools())
    tools = {tool.name for tool in offered}
    parameters = {name for tool in offered for name in tool.input_schema["properties"]}
    told = SKILL.read_text() + (PLUGIN / "commands/fork.md").read_text()
    allowed = front_matter(PLUGIN / "commands/fork.md")["allowed-tools"].split(", ")

    assert {name.rpartition("__")[2] for name in allowed} <= tools
    assert set(re.findall(r"`(\w+_\w+)`", told)) <= tools | parameters
    assert set(re.findall(r"^ *smart-fork (\w+)", told, re.MULTILINE)) <= set(COMMANDS)
    assert "past-sessions" == front_matter(SKILL)["name"]


@pytest.mark.parametrize("event", ["SessionStart"])
def test_the_hook_is_silent_where_smart_fork_is_missing(event, tmp_path):
    ((entry,),) = ([group["hooks"][0] for group in read("plugin/hooks/hooks.json")["hooks"][event]],)

    done = subprocess.run(
        ["/bin/sh", "-c", entry["command"]],
        env={"PATH": str(tmp_path)},
        input="{}",
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(("named", "expected"), [(True, "project"), (False, "")])
def test_the_hook_asks_about_the_project_that_the_agent_names(named, expected, tmp_path):
    ((entry,),) = ([group["hooks"][0] for group in read("plugin/hooks/hooks.json")["hooks"]["SessionStart"]],)
    (tmp_path / "project").mkdir()
    program = tmp_path / "smart-fork"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)

    done = subprocess.run(
        ["/bin/sh", "-c", entry["command"]],
        env={"PATH": str(tmp_path)} | ({"CLAUDE_PROJECT_DIR": str(tmp_path / "project")} if named else {}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert (f"{tmp_path / expected}\n", "") == (done.stdout, done.stderr)


def server_command(programs: Path) -> subprocess.CompletedProcess[str]:
    server = read("plugin/.mcp.json")["mcpServers"]["smart-fork"]
    (programs / "sh").symlink_to("/bin/sh")
    return subprocess.run(
        [str(programs / server["command"]), *server["args"]],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


def fake(programs: Path, name: str) -> None:
    (programs / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
    (programs / name).chmod(0o755)


def test_the_server_is_the_one_that_is_installed(tmp_path):
    fake(tmp_path, "smart-fork")
    fake(tmp_path, "uvx")

    assert "smart-fork mcp\n" == server_command(tmp_path).stdout


def test_without_an_installed_one_uv_brings_the_plugin_s_version(tmp_path):
    fake(tmp_path, "uvx")

    assert (
        f"uvx --from smart-fork=={project()['version']} python -I -m smart_fork mcp\n"
        == server_command(tmp_path).stdout
    )


def test_without_both_the_server_says_what_is_missing(tmp_path):
    done = server_command(tmp_path)

    assert 127 == done.returncode
    assert "smart-fork is not installed" in done.stderr
