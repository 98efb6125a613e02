"""The commands in the README, the tutorials and the how-tos: each is understood, and prints what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from smart_fork.cli import command_line
from smart_fork.demo import write_demo_home
from smart_fork.terminal.commands import COMMANDS
from tests.smart_fork.scripted import AGENT

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("tutorials/*.md")),
    *sorted((ROOT / "docs").glob("how-to/*.md")),
]
#: What differs from run to run: times and ages, ids that are times, scores and the words for them, processes.
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d(?:T[\d:.]+Z)?"), "<date>"),
    (re.compile(r"\b01[0-9a-f]{6}-[0-9a-f]{4}\b"), "<id>"),
    (re.compile(r"[<>]? *\d+ % (?:very likely|likely|possible|unlikely) *"), "<score> "),
    (re.compile(r"\bused \d+ d ago"), "used <n> d ago"),
    (re.compile(r" \((?:opening|answers|near|needed|last)\)$"), ""),
    # The home's name is counted too.
    (re.compile(r"\b[\d,]+ of [\d,]{3,}"), "<n> of <n>"),
    (re.compile(r"\(conversation [\d,]+; instructions and tools [\d,]+\)"), "(<n>; <n>)"),
)


class Example(NamedTuple):
    """A command, and the lines below it; ``...`` stands for any lines."""

    page: str
    command: str
    prints: tuple[str, ...]


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for line in re.findall(r"^(?:    |\$ )?(smart-fork\b[^\n]*)$", page.read_text(), re.MULTILINE):
            for part in re.split(r" \| | > |  +#", line)[:1]:
                yield page.relative_to(ROOT).as_posix(), part.strip()


def examples() -> Iterator[Example]:
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            for said in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *lines = said.rstrip().splitlines()
                yield Example(page.relative_to(ROOT).as_posix(), command, tuple(lines))


EXAMPLES = list(examples())


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_a_command_on_a_page_is_understood(page, line):
    words = shlex.split(line.replace("…", ""))[1:]
    command: Any = command_line(*COMMANDS)
    while words and words[0] in getattr(command, "commands", ()):
        command, words = command.commands[words[0]], words[1:]

    if words not in (["--install-completion"], ["--verbose", "COMMAND"]):
        command.make_context("smart-fork", words)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's home with an index and scripted agents, which only say what they can do."""
    demo = write_demo_home(tmp_path_factory.mktemp("demo"))
    programs = demo.home / "bin"
    programs.mkdir()
    for name in ("claude", "codex"):
        (programs / name).write_text(AGENT)
        (programs / name).chmod(0o700)
    env = {"HOME": str(demo.home), "PATH": f"{programs}:{os.environ['PATH']}", "SMART_FORK_BACKGROUND": "0"}
    ran(demo, env, "smart-fork index run")
    return demo, env


def ran(demo: Any, env: dict[str, str], command: str) -> list[str]:
    argv = [sys.executable, "-P", "-m", *shlex.split(command.replace("smart-fork", "smart_fork", 1))]
    env = {**env, "PYTHONPATH": str(ROOT), "SMART_FORK_CHECK_LOGIN": "false"}
    with subprocess.Popen(argv, cwd=demo.project, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        said, _ = process.communicate()
    return said.decode().replace(str(demo.home.resolve()), "~").rstrip().splitlines()


def alike(line: str) -> str:
    for pattern, word in _VARIES:
        line = pattern.sub(word, line)
    return " ".join(line.split())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: f"{one.page}: {one.command}")
def test_a_command_prints_what_its_page_says(demo, example):
    printed = "\n".join(map(alike, ran(*demo, example.command)))
    wanted = r"\s*".join(".*" if line == "..." else re.escape(alike(line)) for line in example.prints)

    assert re.fullmatch(wanted, printed, re.DOTALL), printed
