"""One agent more, which nothing but its folder knows: whatever can be chosen among agents offers it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import parametrize_subtests

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"
BEFORE = "from tests.smart_fork import invented_agent\n"
#: What is offered, as JSON.
OFFERED = """
import json
import anyio
from mcp import Client
from smart_fork.agents.references import Reference
from smart_fork.agents import AGENTS
from smart_fork.finding.request import collections
from smart_fork.page.renderer import _environment
from smart_fork.server import Server
from smart_fork.cli.service.unit_settings import PROGRAMS

async def asked():
    async with Client(Server(everything=True), mode="legacy") as client:
        return client.instructions, {one.name: one.input_schema for one in (await client.list_tools()).tools}

instructions, tools = anyio.run(asked)
print(json.dumps({
    "choices": AGENTS.choices(), "both": AGENTS.selected("both"), "all": AGENTS.selected("all"),
    "word": AGENTS.word_for(AGENTS.selected("all")),
    "collections": collections(), "worker": Reference.parsed("madeup-1234").names_session, "programs": PROGRAMS,
    "readable": _environment.globals["readable"], "folders": _environment.globals["log_folders"],
    "instructions": instructions, "tools": tools,
}))
"""


def with_another(code: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What this code does in a process that knows of one agent more, called with these words."""
    return subprocess.run(
        [sys.executable, "-c", BEFORE + code, *words],
        cwd=ROOT, env=os.environ | {"COLUMNS": "200"} | env, capture_output=True, text=True, check=False,
    )  # fmt: skip


#: `smart-fork`, called with each of these lists of words in a fork of one process.
COMMANDS = """
import json, os, sys, tempfile, traceback
from smart_fork.cli.main import main

def called(words):
    status = 1
    os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
    sys.argv = ["smart-fork", *words]
    try:
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(status)

done = []
for words in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork() or called(words)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        done.append([status, *(os.pread(one.fileno(), 1 << 20, 0).decode() for one in (out, err))])
print(json.dumps(done))
"""


HELP = [
    (("find", "--help"), "madeup, both, or all."),
    (("active", "--help"), "madeup, both, or all."),
    (("new", "--help"), "or madeup."),
    (("spawn", "--help"), "or madeup."),
]
MISTAKES = [
    (("find", "x", "--agent", "nobody"), 2, "'nobody' is not 'claude', "),
    (("active", "--adapter", "nobody"), 2, "'nobody' is not 'claude', "),
    (("new", "x", "--agent", "nobody"), 1, "Unknown adapter: nobody"),
]
CALLED = [words for words, *_ in (*HELP, *MISTAKES)]


@pytest.fixture(scope="module")
def told() -> list[Any]:
    """What is offered, and what each command answers: one process imports what both need."""
    done = with_another(OFFERED + COMMANDS, json.dumps(CALLED))
    assert "" == done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def offered(told) -> dict:
    return told[0]


def test_it_is_one_of_those_that_can_be_meant(offered):
    assert "madeup" in offered["choices"]
    assert ("madeup", "all") == (offered["all"][-1], offered["word"])
    assert ["claude", "codex"] == offered["both"]
    assert "madeup-sessions" == offered["collections"]["madeup"]
    assert offered["worker"]
    assert "madeup" in offered["programs"]


def test_a_tool_takes_it(offered):
    about = offered["tools"]["find_sessions"]["properties"]["agent_type"]["description"]

    assert "'codex'," in about
    assert "'madeup', 'both', or 'all'" in about


@pytest.mark.parametrize("tool", ["smart_fork", "list_sessions", "list_workers"])
def test_the_other_tools_do_not_say_it_again(offered, tool):
    """What a model reads before it asks grows with each agent, so it is there once."""
    assert "As for find_sessions." == offered["tools"][tool]["properties"]["agent_type"]["description"]


def test_it_is_started(offered):
    worker = offered["tools"]["spawn_workers"]["properties"]["workers"]["items"]["properties"]

    assert "madeup" == worker["agent_type"]["enum"][-1]


def test_a_model_is_told_of_it(offered):
    assert re.search(r"^Past Claude Code, .*and Made Up sessions of this repository", offered["instructions"])


def test_the_page_offers_it(offered):
    assert "madeup" in offered["readable"]
    assert "~/.madeup/projects" in offered["folders"]


@pytest.fixture(scope="module")
def answers(told) -> dict[tuple[str, ...], tuple[int, str, str]]:
    """Status, output and errors of each command."""
    return {words: tuple(one) for words, one in zip(CALLED, told[1], strict=True)}


@parametrize_subtests("words, expected", HELP)
def test_the_help_names_it(answers, words, expected):
    assert expected in " ".join(answers[words][1].replace("│", " ").split())


@parametrize_subtests("words, code, expected", MISTAKES)
def test_whoever_names_none_is_told_of_it(answers, words, code, expected):
    status, _, told = answers[words]

    assert code == status
    assert expected in told
    assert "madeup" in told


def test_a_shell_completes_its_name():
    done = with_another(
        "import sys; sys.argv[0] = 'smart-fork'; from smart_fork.cli.main import main; main()",
        _SMART_FORK_COMPLETE="complete_zsh",
        _TYPER_COMPLETE_ARGS="smart-fork list --agent mad",
    )

    assert "madeup" in done.stdout


def test_its_sessions_are_listed_found_and_read(world, shop, home):
    session_id = world.claude(shop, RETRY, DONE)
    (home / ".claude").rename(home / ".madeup")
    code = f"""
import json
from smart_fork.finding import session_lookup
from tests.smart_fork.searches import find
from smart_fork.finding.request import FindRequest
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.recent import list_recent
from tests.smart_fork.world import WordsModel

found = find(FindRequest({RETRY!r}, agent_type="all"), Engine(WordsModel()), {str(shop)!r}).as_json()
print(json.dumps([
    [one.session_id for one in list_recent(which, {str(shop)!r}, 9).sessions] for which in ("all", "both", "madeup")
] + [[(one["session_id"], one["agent_type"]) for one in found["results"]], session_lookup.locate({session_id!r}).agent]))
"""
    done = with_another(code)
    assert 0 == done.returncode, done.stderr

    assert [[session_id], [], [session_id], [[session_id, "madeup"]], "madeup"] == json.loads(done.stdout), done.stderr
