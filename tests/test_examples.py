"""The commands of the README, the tutorials and the how-tos: each runs, and prints what its page says."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import psutil
import pytest
import yaml

from smart_fork.cli.command import examples as help_examples
from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.demo import write_demo_home
from smart_fork.cli.main import command_line
from tests.smart_fork.fake_agents import AGENT
from tests.smart_fork.forks import eventually
from tests.support.cases import parametrize_subtests

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("tutorials/*.md")),
    *sorted((ROOT / "docs").glob("how-to/*.md")),
]
#: Commands that are not run here, and why.
NOT_RUN = {
    "git clone *": "needs the network",
    "git pull": "needs the network",
    "make *": "the workflow runs them",
    "uv tool *": "installs; `make dist` tries the wheel",
    "pipx *": "installs; `make dist` tries the wheel",
    "pip install *": "installs; `make dist` tries the wheel",
    "python3 -m venv *": "installs; `make dist` tries the wheel",
    "~/.local/share/smart-fork/bin/pip *": "installs; `make dist` tries the wheel",
    "ln -sf *": "links what was installed",
    "npm install *": "needs the network; tests/e2e/test_qmd.py runs qmd",
    "export SMART_FORK_MODEL=*": "downloads a model",
    "*smart-fork team *": "needs PostgreSQL; tests/e2e/test_team.py runs them",
    "curl *": "needs a team's server; tests/e2e/test_team.py runs one",
    "smart-fork * --team": "needs a team's server; tests/e2e/test_team.py runs one",
    "smart-fork * 0197f2c7-1a2b*": "the session of a teammate; tests/e2e/test_team.py has some",
    "smart-fork setup": "needs real agents and asks; tests/e2e/test_setup.py runs it",
    "smart-fork setup --recall*": "needs real agents and asks; tests/e2e/test_recall.py runs it",
    "c* plugin *": "needs real agents; tests/e2e/test_plugin.py runs them",
    "*smart-fork service install*": "needs systemd or launchd; tests/e2e/test_service.py runs it",
    "smart-fork service [su]*": "needs an installed service; tests/e2e/test_service.py has one",
    "smart-fork fork 5c7d5c23*": "a session that a repository keeps as Markdown",
    "git fetch origin refs/pull/*": "needs a hosting site",
    "git fetch origin '+refs*": "needs a remote that keeps sessions; tests/smart_fork/test_checkpoints.py has one",
    "smart-fork fork 1 *": "needs a terminal, whose last answer it means; tests/smart_fork/cli/test_last_answer.py has one",
    "smart-fork find --changes": "needs uncommitted changes; tests/smart_fork/finding/test_authorship.py makes some",
    "smart-fork find --pr *": "needs a hosting site",
    "smart-fork project adopt *": "a directory of another machine; tests/smart_fork/finding has one",
    "smart-fork sync*": "needs a second machine; tests/smart_fork/sync has two",
    "smart-fork recall --here *": "needs an agent that runs it; tests/smart_fork/finding/test_within.py has one",
    "smart-fork open*": "needs a running service; tests/e2e/test_page.py has one",
    "smart-fork logs -f": "runs until it is ended",
    "pkill *": "ends the preloaders of all homes",
    "smart-fork message downloader * --*": "needs a terminal; tests/e2e/test_following.py has some",
}
#: What commands need that the demo's home has not: their page says so, in these words.
NEEDED = {
    "*smart-fork team *": "team server",
    "smart-fork * --team": "team server",
    "smart-fork * 0197f2c7-1a2b*": "team server",
    "smart-fork sync*": "git remote",
    "*smart-fork service [isu]*": "launchd",
    "smart-fork find --pr *": "`gh`",
    "smart-fork find --changes": "uncommitted changes",
}
#: Blocks that are the contents of a file: each can be read.
FILES = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}
#: What a fork does when it was given its prompt: it answers, and ends.
ANSWERS = """
if "--" in words and name == "claude":
    said = {"role": "assistant", "content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"}
    about, prompt = {"timestamp": now, "sessionId": session}, str(uuid.uuid4())
    with path.open("a") as log:
        for record in (
            {"type": "user", "uuid": prompt, "parentUuid": None, "message": asked["message"], **about},
            {"type": "assistant", "uuid": str(uuid.uuid4()), "parentUuid": prompt, "message": said, **about},
        ):
            log.write(json.dumps(record) + "\\n")
"""
#: What differs from run to run: times and ages, ids that are times, scores and the words for them, processes.
_VARIES = (
    (re.compile(r"\b\d{8}T\d{6}\.\d{6}Z"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d|T[\d:.]+Z)?"), "<date>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b01[0-9a-f]{6}-[0-9a-f]{4}\b"), "<id>"),
    (re.compile(r"^<date> [0-9a-f]{8}\b"), "<date> <commit>"),
    (re.compile(r"[<>]? *\d+ % (?:very likely|likely|possible|unlikely|sure) *"), "<score> "),
    (re.compile(r"^(\d+) +(?:[<>] )?\d+ %(.*) \d+ days? "), r"\1 <score>\2 <age> "),
    (re.compile(r"\bused \d+ d ago"), "used <n> d ago"),
    (re.compile(r" \((?:opening|answers|near|needed|last)\)$"), ""),
    # The home's name is counted too.
    (re.compile(r"\b[\d,]+ of [\d,]{3,}"), "<n> of <n>"),
    (re.compile(r"\bAbout [\d,]+ tokens become [\d,]+"), "About <n> tokens become <n>"),
    (re.compile(r"\(conversation [\d,]+; instructions and tools [\d,]+\)"), "(<n>; <n>)"),
)


class Example(NamedTuple):
    """A command, and the lines below it, where the page has any; ``...`` stands for any lines."""

    command: str
    prints: tuple[str, ...] | None = None


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The blocks of code of a page, each with its language; README's indented ones are commands."""
    text = page.read_text()
    fence = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    yield from ((language, dedent(code)) for _, language, code in fence.findall(text))
    if page.name == "README.md":
        yield from (("sh", code.strip()) for code in re.findall(r"^    (\S.*)$", fence.sub("", text), re.MULTILINE))


def examples(page: Path) -> Iterator[Example]:
    for language, code in blocks(page):
        if language == "console":
            for said in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
                command, *lines = said.rstrip().splitlines()
                yield Example(command, tuple(lines))
        elif language == "sh":
            yield from (Example(re.split(r"  +#", line)[0].strip()) for line in code.splitlines() if line.strip())
        elif language == "python":
            yield Example(f"python - <<'END'\n{code}END")
        elif language in FILES:
            FILES[language](code)
        else:
            assert not code.startswith("$ "), "a command with its output is a block of `console`"
            assert language in {"text", "mermaid", "sql"}, f"{language or 'no language'}: is it a command?"


def is_run(example: Example) -> bool:
    return not any(fnmatch.fnmatchcase(example.command, pattern) for pattern in NOT_RUN)


def run_pages() -> Iterator[Any]:
    """The pages that have commands to run. What the how-tos' print is in golden files too, and that they are understood is tried here."""
    for page in PAGES:
        if any(map(is_run, examples(page))):
            yield pytest.param(page, marks=pytest.mark.thorough) if page.parent.name == "how-to" else page


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for example in examples(page):
            if example.command.startswith("smart-fork "):
                yield name(page), re.split(r" \| | > ", example.command)[0]


ALL = command_line(*COMMANDS)


@parametrize_subtests(("page", "line"), sorted(set(commands())))
def test_a_command_on_a_page_is_understood(page, line):
    words = shlex.split(line.replace("…", ""))[1:]
    command = ALL
    while words and words[0] in getattr(command, "commands", ()):
        command, words = command.commands[words[0]], words[1:]

    if words != ["--install-completion"]:
        command.make_context("smart-fork", words)


def test_what_is_not_run_is_on_a_page():
    found = [example.command for page in PAGES for example in examples(page)]

    assert [] == [pattern for pattern in NOT_RUN if not fnmatch.filter(found, pattern)]


@parametrize_subtests("page", sorted((ROOT / "docs").rglob("*.md")))
def test_a_page_says_what_its_commands_need_beside_the_demo(page):
    found = [example.command for example in examples(page)]
    needed = {word for pattern, word in NEEDED.items() if fnmatch.filter(found, pattern)}

    assert set() == {word for word in needed if word not in " ".join(page.read_text().split())}


def test_an_example_with_jq_says_and_does_nothing_where_the_answer_is_empty():
    found = [example.command for page in PAGES for example in examples(page) if " | jq " in example.command]

    assert len(found) >= 2
    for command in found:
        rest = command.partition(" | jq ")[2].replace("smart-fork", "false")
        whole = f"""echo '{{"results": [], "snapshots": []}}' | jq {rest}"""
        done = subprocess.run(["/bin/bash", "-c", whole], capture_output=True, text=True, check=False)
        assert (0, "") == (done.returncode, done.stdout), command


class Shell:
    """The demo's home with an index, and scripted agents that answer and end; the directory is that of the last `cd`.

    `again` makes home and directory what they were at first. Commands that have a preloader use it.
    """

    def __init__(self, home: Path, kept: Path) -> None:
        demo = write_demo_home(home)
        self.home, self.folder, programs = demo.home, demo.project, demo.home / "bin"
        programs.mkdir()
        answering = AGENT.replace("signal.pause()", ANSWERS)
        ours = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m smart_fork "$@"\n'
        python = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
        texts = {"claude": answering, "codex": answering, "smart-fork": ours, "python": python}
        for program, text in texts.items():
            (programs / program).write_text(text)
            (programs / program).chmod(0o700)
        for program in ("git", "sh", "rm", "jq", "xargs"):  # no tmux, so that forks are processes
            (programs / program).symlink_to(shutil.which(program) or "/bin/false")
        self.env = {
            "HOME": str(demo.home), "PATH": str(programs), "PYTHONPATH": str(ROOT), "SMART_FORK_BACKGROUND": "0",
            "SMART_FORK_CHECK_LOGIN": "false", "TMPDIR": str(demo.home),
        }  # fmt: skip
        self.run("smart-fork index run")
        self._first, self._kept = self.folder, kept
        shutil.copytree(home, kept, symlinks=True)
        preload = (sys.executable, "-P", "-m", "smart_fork.cli.preload.server")
        self._preloader = subprocess.Popen(preload, cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL)
        eventually(lambda: len(psutil.Process(self._preloader.pid).children()) == 2)

    def again(self) -> None:
        for path in (self.home / "ran").glob("[!.]*"):
            with suppress(ProcessLookupError):
                os.kill(json.loads(path.read_text())[3], signal.SIGKILL)
        state = self.home / ".smart-fork"
        for path in (*self.home.iterdir(), *state.glob("*")):
            if path not in (state, state / "preload"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(self._kept, self.home, symlinks=True, dirs_exist_ok=True)
        self.folder = self._first

    def run(self, command: str) -> list[str]:
        if command.startswith("cd ~/"):
            clone = self.home / command.removeprefix("cd ~/")
            clone.parent.mkdir(exist_ok=True)
            clone.symlink_to(self.folder)
            self.folder = clone
            return []
        done = subprocess.run(
            ["/bin/bash", "-c", f"{command}\nexit"], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        said = done.stdout.decode()
        assert done.returncode == 0, f"{command}\n{said}"
        return said.replace(str(self.home.resolve()), "~").rstrip().splitlines()

    def end(self) -> None:
        self._preloader.kill()
        self._preloader.wait()


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("machine")
    started = Shell(folder / "home", folder / "kept")
    yield started
    started.end()


@pytest.fixture
def shell(machine) -> Iterator[Shell]:
    yield machine
    machine.again()


@pytest.mark.thorough
def test_the_examples_of_the_help_pages_work_on_the_demo(shell):
    said = [example for example in help_examples() if " 70f1a07f" in example]
    for example in sorted(dict.fromkeys(said), key=lambda one: one.startswith(("resume", "forget"))):
        asks = example.startswith(("forget", "excise cut", "excise discard")) and "--undo" not in example
        if example != "resume 70f1a07f" and not example.startswith("team"):  # these need a terminal, and a server
            if example.startswith("resume"):  # which is refused for a log that was cut just now
                shell.again()
            if example.startswith("excise discard"):  # of something
                shell.run("smart-fork excise cut 5-7 70f1a07f --yes")
            shell.run(f"smart-fork {example}{' --yes' if asks else ''}")


def alike(line: str) -> str:
    for pattern, word in _VARIES:
        line = pattern.sub(word, line)
    return " ".join(line.split())


@pytest.mark.parametrize("page", list(run_pages()), ids=name)
def test_the_commands_of_a_page_run_in_order_and_print_what_it_says(page, shell):
    for example in filter(is_run, examples(page)):
        printed = "\n".join(map(alike, shell.run(example.command)))
        if example.prints is not None:
            wanted = r"\s*".join(".*" if line == "..." else re.escape(alike(line)) for line in example.prints)
            assert re.fullmatch(wanted, printed, re.DOTALL), f"{example.command}\n{printed}"
