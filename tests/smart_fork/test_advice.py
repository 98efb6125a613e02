"""What to do next is said in the words of whoever asks."""

from __future__ import annotations

import ast
import re
from contextvars import copy_context
from functools import cache
from pathlib import Path

import pytest

from smart_fork import errors
from smart_fork.cli.command_table import COMMANDS
from smart_fork.errors import NotFound, advice
from smart_fork.finding import session_lookup
from smart_fork.server import FEW
from tests.smart_fork.mcp_client import call, refusal
from tests.smart_fork.tool_server import create_server

PACKAGE = Path(errors.__file__).parent
#: Rooms that only a person at a terminal, or in front of the page, ever hears.
OF_PEOPLE = ("cli/", "doctor.py", "hooks/", "page/")
#: The server of a team answers its commands, and they are people's, as is what both sides say.
OF_PEOPLE += ("sharing/", "team/")
#: The same of single modules: suggesting is commands alone.
OF_PEOPLE += ("agents/excision/snapshots.py", "excise/suggestions.py")
#: `git worktree remove --force` is git's.
COMMAND = re.compile(rf"smart-fork (?:{'|'.join(COMMANDS)})\b(?! on demand)|(?<!remove )(?<=\s)--[a-z]+")
TOOL_NAMES = sorted(create_server()._tool_manager._tools)


@cache  # for three tests
def prose(module: Path) -> list[tuple[str, str, int]]:
    """The texts of a module that somebody may read: where each stands (``command``, ``tool`` or nothing), and its line."""
    nodes = [*ast.walk(ast.parse(module.read_text()))]
    said: dict[ast.AST, str] = {}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "advice":
            said |= dict.fromkeys(ast.walk(node.args[0]), "command")
            said |= dict.fromkeys(ast.walk(node.keywords[0].value), "tool")
        if isinstance(node, ast.keyword) and node.arg in ("help", "described"):  # of an option of a worker
            said |= dict.fromkeys(ast.walk(node.value), "command" if node.arg == "help" else "tool")
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            said[node.value] = "docstring"
    texts = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [(said.get(node, ""), node.value, node.lineno) for node in texts if " " in node.value]


def modules() -> list[Path]:
    # How an agent is told of us is said by `setup` and `serve` alone.
    found = [one for one in sorted(PACKAGE.rglob("*.py")) if not one.match("agents/*/settings.py")]
    return [one for one in found if not one.relative_to(PACKAGE).as_posix().startswith(OF_PEOPLE)]


def test_the_rooms_of_people_exist():
    assert [] == [room for room in OF_PEOPLE if not (PACKAGE / room).exists()]


def wrongly_told(names: re.Pattern[str], heard: tuple[str, ...], *other_rooms: str) -> list[tuple[str, int, str]]:
    """The texts, heard in one of these ways, that have one of these names: but for those of other rooms."""
    return [
        (module.relative_to(PACKAGE).as_posix(), line, text)
        for module in modules()
        if not module.relative_to(PACKAGE).as_posix().startswith(other_rooms)
        for where, text, line in prose(module)
        if where in heard and names.search(text)
    ]


def test_no_command_is_named_to_whoever_has_tools():
    assert [] == wrongly_told(COMMAND, ("", "tool"))


def test_no_tool_is_named_to_whoever_has_commands():
    """Whoever talks to the server has tools."""
    names = re.compile(rf"\b(?:{'|'.join(name for name in TOOL_NAMES if name != 'smart_fork')})\b")

    assert [] == wrongly_told(names, ("", "command"), "server/", "front/")


def test_who_has_the_few_tools_is_sent_to_no_other():
    """What is cut is asked for by who has all."""
    names = re.compile(rf"\b(?:{'|'.join(set(TOOL_NAMES) - set(FEW))})\b")

    assert [] == wrongly_told(names, ("tool",), "excise/")


def test_each_hears_what_it_can_do():
    assert advice("type it", tool="call it") == "type it"

    asked = copy_context()
    asked.run(errors.speak_of_tools)

    assert asked.run(advice, "type it", tool="call it") == "call it"
    assert advice("type it", tool="call it") == "type it"


def test_the_same_mistake_is_explained_with_a_command_and_with_a_tool(world):
    with pytest.raises(NotFound) as told:
        session_lookup.locate("deadbeef")

    assert told.value.hint == "`smart-fork list --all-projects` lists all sessions."
    assert refusal(world, "read_session", session_id="deadbeef").endswith("list_sessions lists all sessions.")


def test_a_deleted_log_is_told_of_with_a_tool_in_an_answer_as_well(world, shop):
    identity = world.claude(shop, "add retry", "done")
    world.find("retry", shop)
    world.log_of(identity).unlink()

    found = call(world, intent="retry", project_path=str(shop)).structured_content

    assert "read_session" in found["results"][0]["warning"]
    assert "smart-fork show" in world.find("retry", shop)["results"][0]["warning"]
