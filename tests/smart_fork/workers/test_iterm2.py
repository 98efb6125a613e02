"""Tests of the iTerm2 place, with a scripted module in place of iTerm2's Python API."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from indexer.environment import WORKER_ID
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed
from smart_fork.system.processes import Machine
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.terminals import ITerm2Place
from smart_fork.workers.worker_place import WorkerLocation
from tests.smart_fork.forks import SESSION, FakeProcesses, eventually, plan_of, python

HOSTILE = ["--help", "it's", "$(touch pwned)", "two\nlines", ";", "\\", "\x1b[31m", "ü 😀", ""]
ENV = {"PATH": os.environ["PATH"], "SECRET": "a; $(touch pwned)\n", WORKER_ID: "w-1"}
PLACE = ITerm2Place()


@pytest.fixture
def worker(repo: Path) -> WorkerRecord:
    with Registry() as registry:
        return registry.add("claude", name="fix \x1b]0;x\x07 it", source_session_id=SESSION, place="iterm2", cwd=repo)


class Session:
    """The session of one tab."""

    session_id = "ABC-1"

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.name = ""
        self.closed = False

    async def async_set_name(self, name):
        self.name = name

    async def async_get_variable(self, name):
        return {"pid": 4242}[name]

    async def async_send_text(self, text, suppress_broadcast=False):
        assert suppress_broadcast, "other tabs must not hear it"
        self.sent.append(text)

    async def async_get_screen_contents(self):
        return SimpleNamespace(number_of_lines=2, line=lambda i: SimpleNamespace(string=f"line {i}"))

    async def async_close(self, force):
        self.closed = force


class Played(ModuleType):
    """The used part of the ``iterm2`` package."""

    def __init__(self, *, window: bool) -> None:
        super().__init__("iterm2")
        self.session = Session()
        self.commands: list[str] = []
        tab = SimpleNamespace(current_session=self.session)

        async def open_tab(command):
            self.commands.append(command)
            return tab

        async def open_window(_connection, command):
            self.commands.append(command)
            return SimpleNamespace(current_tab=tab)

        self.Window = SimpleNamespace(async_create=open_window)
        front = SimpleNamespace(async_create_tab=open_tab) if window else None
        find = {self.session.session_id: self.session}.get
        self.app = SimpleNamespace(current_terminal_window=front, get_session_by_id=find)

    async def async_get_app(self, _connection):
        return self.app

    def run_until_complete(self, main):
        return asyncio.run(main("connection"))


@pytest.fixture
def iterm2(monkeypatch) -> Played:
    played = Played(window=True)
    monkeypatch.setitem(sys.modules, "iterm2", played)
    return played


@pytest.fixture
def running() -> FakeProcesses:
    """Return processes that include the worker's."""
    processes = FakeProcesses()
    processes.started = [{"env": {WORKER_ID: "w-1"}}]
    return processes


TAB = WorkerLocation("ABC-1", 4242, attach="the tab", worker_id="w-1")


@pytest.mark.parametrize("window", [True, False])
def test_what_opens_becomes_exactly_the_plan(worker, repo, monkeypatch, window):
    """F-104, X-002: iTerm2 is given our own words only, and the file that says the rest removes itself."""
    monkeypatch.setitem(sys.modules, "iterm2", played := Played(window=window))
    report = repo / "report.json"
    code = (
        "import json, os, sys; open(sys.argv[1], 'w').write(json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]))"
    )
    plan = plan_of(python(code, str(report), *HOSTILE), repo, env={WORKER_ID: "w-1"})

    started = PLACE.start(plan, worker, Machine(FakeProcesses(), ENV))

    (command,) = played.commands
    assert not any(word in command for word in ("touch", "help", "SECRET"))
    subprocess.run(["sh", "-c", command], check=True, cwd="/")
    eventually(report.exists)
    arguments, cwd, env = json.loads(report.read_text())
    assert (HOSTILE, str(repo), ENV) == (arguments, cwd, {name: env[name] for name in ENV})
    assert set(env) - set(ENV) <= {"LC_CTYPE", "PWD", "__CF_USER_TEXT_ENCODING"}
    assert ("ABC-1", 4242, worker.id) == (started.terminal_id, started.pid, started.worker_id)
    assert "iTerm2, tab “fix ]0;x it”" == started.attach
    assert [] == list((repo.parent / ".smart-fork/logs/workers").iterdir())


def test_a_directory_that_is_gone_is_an_error(worker, repo, iterm2):
    with pytest.raises(NotFound):
        PLACE.start(plan_of(["claude"], repo / "gone"), worker, Machine(FakeProcesses(), ENV))
    assert [] == iterm2.commands


def test_it_is_read_typed_into_and_closed(iterm2, running):
    assert "line 0\nline 1" == PLACE.screen(TAB, Machine(running, ENV))
    assert PLACE.ended(TAB, Machine(running, ENV)) is None
    PLACE.paste(TAB, "two\nlines", Machine(running, ENV))
    PLACE.press(TAB, "2", Machine(running, ENV))
    PLACE.press(TAB, "Enter", Machine(running, ENV))
    PLACE.press(TAB, "Up", Machine(running, ENV))
    PLACE.press(TAB, "Down", Machine(running, ENV))
    assert ["\x1b[200~two\nlines\x1b[201~", "2", "\r", "\x1b[A", "\x1b[B"] == iterm2.session.sent
    PLACE.close(TAB, Machine(running, ENV))
    assert iterm2.session.closed


def test_what_is_not_ours_is_neither_typed_into_nor_closed(iterm2, running):
    """X-003."""
    running.started = [{"env": {WORKER_ID: "w-2"}}]

    for act in (
        lambda: PLACE.paste(TAB, "x", Machine(running, ENV)),
        lambda: PLACE.press(TAB, "1", Machine(running, ENV)),
        lambda: PLACE.close(TAB, Machine(running, ENV)),
    ):
        with pytest.raises(ForkRefused):
            act()
    assert "Its tab was closed." == PLACE.ended(TAB, Machine(running, ENV))
    assert ([], False) == (iterm2.session.sent, iterm2.session.closed)


def test_a_tab_that_is_gone_and_an_odd_key_are_refused(iterm2, running):
    gone = WorkerLocation("XYZ", 4242, worker_id="w-1")

    assert PLACE.screen(gone, Machine(running, ENV)) is None
    with pytest.raises(ForkRefused, match="closed"):
        PLACE.paste(gone, "x", Machine(running, ENV))
    with pytest.raises(ForkRefused, match="Unknown key"):
        PLACE.press(TAB, "C-c", Machine(running, ENV))
    PLACE.close(gone, Machine(running, ENV))


def test_an_iterm2_that_does_not_answer_is_a_failure(iterm2, running):
    def refuse(_main):
        raise ConnectionRefusedError("no API")

    iterm2.run_until_complete = refuse
    with pytest.raises(ProgramFailed, match="no API") as caught:
        PLACE.screen(TAB, Machine(running, ENV))
    assert "Python API" in caught.value.hint
