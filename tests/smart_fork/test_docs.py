"""What is documented is there, and what is there is documented."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from indexer.environment import GIVEN, VARIABLES
from smart_fork import config
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent
from smart_fork.agents.request_fields import KEYS
from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.config import agent_variables
from smart_fork.cli.main import application
from smart_fork.finding import ranking
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.ranking import KNOWN, KNOWN_AGAIN
from smart_fork.finding.request import FindRequest
from smart_fork.forking.results import StartedWorker
from smart_fork.server.worker_tools import _worker_schema
from smart_fork.workers.worktree_cleanup import WorkersTree
from tests.smart_fork.answers import a_fork
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.searches import find
from tests.smart_fork.world import World
from tests.support.cases import parametrize_subtests

ROOT = Path(__file__).resolve().parents[2]
RETRY = "add retry with backoff to the uploader"


def documented() -> dict[str, tuple[set[str], set[str]]]:
    """For each heading of docs/reference/json.md the keys that are always there, and those that may be."""
    tables: dict[str, tuple[set[str], set[str]]] = {}
    for part in re.split(r"^##+ ", (ROOT / "docs/reference/json.md").read_text(), flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\* `(\w+)`(\??)[^:,\n]*(?::|$)", part, re.MULTILINE)
        for line in re.findall(r"^\* \[Common keys\].*", part, re.MULTILINE):
            rows += re.findall(r"`(\w+)`(\??)", line)
        tables[part.splitlines()[0]] = {key for key, may in rows if not may}, {key for key, may in rows if may}
    return tables


def assert_documented(heading: str, value: dict[str, Any]) -> None:
    always, sometimes = documented()[heading]
    assert always <= set(value) <= always | sometimes, heading


def test_json_of_a_search(world: World, shop):
    world.claude(shop, RETRY, "done")
    (world.home / "bin/claude").unlink()
    answer = world.find(RETRY, shop, explain=True)

    assert_documented("find, find_sessions and smart_fork", answer)
    assert_documented("explain", answer["results"][0]["explain"])
    assert_documented("index", answer["index"])
    assert_documented("results", answer["results"][0])
    assert_documented("match", answer["results"][0]["match"])
    assert_documented("lineage", answer["results"][0]["lineage"])


def test_json_of_a_search_that_fails(world: World, shop, monkeypatch):
    world.claude(shop, RETRY, "done")
    world.find(RETRY, shop)
    monkeypatch.setenv("SMART_FORK_INDEXING", "0")
    assert_documented("index", world.find(RETRY, shop)["index"])
    monkeypatch.setenv("SMART_FORK_HOME", "/dev/null/x")

    told = find(FindRequest(RETRY), Engine(world.model), shop).as_json()

    assert_documented("index_not_available", told)
    assert_documented("sessions", told["fallback_sessions"][0])


def test_json_of_the_commands(run, world, shop):  # noqa: F811
    session_id = world.claude(shop, RETRY, "done")
    with world.log_of(session_id).open("a") as file:
        file.write("{broken\n")

    def out(*words: str) -> Any:
        return json.loads(run(*words, "--json").out)

    assert_documented("index run", report := out("index", "run"))
    assert_documented("broken_logs", report["broken_logs"][0])
    assert_documented("index status and index_status", status := out("index", "status"))
    assert_documented("broken_logs", status["broken_logs"][0])
    assert_documented("index path", out("index", "path"))
    assert_documented("list and list_sessions", out("list"))
    assert_documented("show and read_session", shown := out("show", session_id))
    assert_documented("messages", shown["messages"][0])
    assert_documented("doctor", checked := out("doctor"))
    assert_documented("checks", checked["checks"][0])
    assert_documented("errors", out("show", "12345678"))
    other = world.claude(shop, "draw the map", "drawn")
    assert_documented("forget", out("forget", other, "--yes"))
    world.log_of(session_id).unlink()
    assert_documented("show and read_session", out("show", session_id))


def _script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def json_docs():
    return _script("json_docs")


def test_the_tables_of_json_are_as_the_values_are(json_docs):
    text = (ROOT / "docs/reference/json.md").read_text()

    assert json_docs.made(text) == text, "`make json-docs` writes them"


def test_each_table_that_is_made_has_its_heading(json_docs):
    assert [] == [heading for heading in json_docs.TABLES if heading not in documented()]


def test_a_key_that_is_new_or_gone_is_seen(json_docs):
    text = (ROOT / "docs/reference/json.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("* `tokens_at_match`"))

    assert text == json_docs.made(text.replace(f"{row}\n", "")).replace("* `tokens_at_match` integer or null", row)
    assert row in json_docs.made(text.replace(row, row.replace("`tokens_at_match`", "`tokens_at_match`?")))


def test_a_common_key_is_only_named_unless_it_means_something_else_here(json_docs):
    text = (ROOT / "docs/reference/json.md").read_text()
    listed = "* [Common keys](#common-keys): "
    own = text.replace(f"{listed}`subject`, ", f"* `subject` string: in this section\n{listed}")

    assert own != text
    assert "* `subject` string: in this section\n" in json_docs.made(own)
    assert json_docs.made(own.replace(": in this section", "")) == text


def test_a_fork_is_documented():
    always, sometimes = documented()["forked_session"]

    assert a_fork("session-1").as_json().keys() == always
    assert sometimes == {"forked_index", "handed", "merged", "selection", "news", "price", "resolved", "ways"}


def test_worktrees_are_documented():
    assert set(WorkersTree.__dataclass_fields__) == documented()["trees"][0]


def test_a_started_worker_is_documented():
    always, sometimes = documented()["started_worker"]

    assert set(StartedWorker.__dataclass_fields__) == always | {"news"}
    assert sometimes == {"already_running", "how", "news"}


def test_what_can_be_said_of_a_worker_is_documented():
    text = (ROOT / "docs/how-to/workers.md").read_text()

    assert [] == [key for key in KEYS if f"| `{key}` |" not in text]
    assert set(_worker_schema()["properties"]) == set(KEYS)


def commands() -> dict[str, Any]:
    return _within(typer.main.get_command(application(*COMMANDS)))


def _within(group: Any, above: str = "") -> dict[str, Any]:
    """The commands of a group, and those of the groups in it, by all their words."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        if not command.hidden:
            words = f"{above}{name}"
            found |= _within(command, f"{words} ") if hasattr(command, "commands") else {words: command}
    return found


@pytest.fixture(scope="module")
def reference():
    return _script("reference")


@pytest.mark.parametrize("page", ["commands.md", "tools.md", "settings.md"])
def test_the_reference_is_what_the_code_says(reference, page):
    assert reference.pages()[page] == (ROOT / "docs/reference" / page).read_text(), "`make reference` writes it"


@parametrize_subtests("name", COMMANDS)
@pytest.mark.slow
def test_a_command_has_the_same_purpose_in_the_list_and_in_its_own_help(name):
    own: Any = typer.main.get_command(application(name))
    listed: Any = typer.main.get_command(application())

    assert " ".join(own.commands[name].help.split("\n\n")[0].split()) == listed.commands[name].help
    assert listed.commands[name].hidden or not own.commands[name].hidden


def test_every_environment_variable_of_ours_is_in_the_table_of_settings():
    source = "".join(path.read_text() for name in ("indexer", "smart_fork") for path in (ROOT / name).rglob("*.py"))
    listed = {str(one) for one in (*VARIABLES, *GIVEN, *agent_variables())}

    read = {one for one in re.findall(r"(?<!_)SMART_FORK_[A-Z_]+", source) if not one.endswith("_")} | set(
        AGENTS.overrides()
    )
    assert read == {name for name in listed if name.startswith("SMART_FORK_")}


def test_every_key_of_the_settings_file_is_in_the_table_of_settings():
    sections = {"": config.TopLevel, "service": config.ServiceSection, "team": config.TeamSection}
    keys = {(section, one.name) for section, kind in sections.items() for one in fields(kind)}

    assert keys == {(section, one.name) for section, one in config.all_keys()}


@pytest.mark.parametrize("name", ["README.md", "docs/reference/agents.md"])
def test_what_can_be_done_with_each_agent_is_what_there_is_of_it(name):
    rows = [
        ["Agent", *(ability.words.capitalize() for ability in Agent.ABILITIES.values())],
        ["---"] * (len(Agent.ABILITIES) + 1),
    ]
    rows += [[agent.title, *("yes" if able else "–" for able in agent.abilities().values())] for agent in AGENTS]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)

    assert table in (ROOT / name).read_text(), f"In {name} should stand:\n{table}"


@parametrize_subtests(
    "page",
    [
        "docs/explanation/architecture.md",
        "docs/how-to/add-an-agent.md",
        "docs/explanation/searching.md",
        "CONTRIBUTING.md",
    ],
)
def test_every_module_that_is_named_is_there(page):
    named = re.findall(r"`((?:\w+/)*\w+\.py)`", (ROOT / page).read_text())
    there = [
        path.as_posix()
        for folder in ("indexer", "smart_fork", "tests", "benchmarks", "scripts")
        for path in (ROOT / folder).rglob("*.py")
    ]

    examples = {"src/upload.py"}
    assert [] == [
        name for name in named if name not in examples and not any(path.endswith(f"/{name}") for path in there)
    ]


def test_the_worths_of_the_evidence_are_those_of_the_code():
    text = (ROOT / "docs/explanation/searching.md").read_text()
    of_session, of_exchange = text.partition("\n## What people really type")[0].split("## The fork point")

    assert {name: str(worth) for name, worth in KNOWN["both"].worth._asdict().items()} == _worths(of_session)
    assert {name: str(worth) for name, worth in ranking.WORTH._asdict().items()} == _worths(of_exchange)
    assert f"It takes {KNOWN['both'].nothing} points" in text
    again = KNOWN_AGAIN["both"]
    for name, worth in again.worth._asdict().items():
        assert f"`{name}` {worth:g}" in text
    assert f"and {again.nothing}\npoints" in text


def _worths(text: str) -> dict[str, str]:
    """The last column of a table of evidence, by its first."""
    return dict(re.findall(r"^\| `(\w+)` \|.*\| (-?[\d.]+) \|$", text, re.MULTILINE))
