"""Commands in a preloaded process: they behave as in their own process, but start sooner."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from smart_fork.cli.launcher import VARIABLE
from smart_fork.cli.preload import client
from smart_fork.cli.preload.client import start_preloader
from smart_fork.cli.preload.server import may_ask
from tests.conftest import move_into
from tests.smart_fork.forks import eventually as until
from tests.support.cases import thorough_except_first
from tests.support.executables import shebang
from tests.support.exhaustive import full_or_sample
from tests.support.mcp_process import McpProcess
from tests.support.processes import command_line

SERVER = (sys.executable, "-P", "-m", "smart_fork.cli.preload.server")
PROGRAM = (sys.executable, "-P", "-m", "smart_fork")

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a preloader"), pytest.mark.slow]


class Preloader:
    """A preloader in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process = subprocess.Popen(SERVER, stderr=subprocess.PIPE)
        until(self.waiting)

    def waiting(self) -> set[int]:
        try:
            return {child.pid for child in psutil.Process(self.process.pid).children()}
        except psutil.NoSuchProcess:
            return set()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def leave_a_killed_one() -> None:
    """Leave the socket of a killed preloader, where no process listens. The killed one had loaded nothing."""
    listens = "import smart_fork.cli.preload.server as one; one._load = lambda: None; one.main()"
    with subprocess.Popen((sys.executable, "-P", "-c", listens)) as killed:
        waiting = until(lambda: psutil.Process(killed.pid).children())
        killed.kill()
    psutil.wait_procs(waiting, timeout=90)  # they have its socket as well, until they see that it is gone
    assert Path(client.socket_path() or "").exists()


@pytest.fixture(scope="module")
def started(tmp_path_factory) -> Iterator[Preloader]:
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("preloaded")
        move_into(home, patch)
        patch.delenv(VARIABLE)
        (home / ".smart-fork").mkdir(mode=0o700)
        leave_a_killed_one()
        preloader = Preloader(home)
    yield preloader
    preloader.end()


@pytest.fixture
def preloader(started, monkeypatch) -> Preloader:
    """Start a preloader, and put this test into its home."""
    move_into(started.home, monkeypatch)
    monkeypatch.delenv(VARIABLE)
    until(lambda: len(started.waiting()) == 2)
    return started


def ran(*words: str, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*PROGRAM, *words), capture_output=True, text=True, timeout=120, check=False, **how)  # type: ignore[call-overload,no-any-return]


def test_a_waiting_process_has_compiled_what_the_first_command_uses():
    """Rare patterns of keys and the classes of a fork are compiled, too: compiling them took a fifth of a fork's time."""
    program = """
import re
from indexer import lazy_compilation
from smart_fork.cli.preload import server
server._load()
from indexer.masking import mask
from smart_fork.system.processes import Completed
compiled = []
re._compiler.compile = lazy_compilation._compiled_init = lambda *given: compiled.append(given)
mask("fedcba9876543210fedcba9876543210-us12 and fedcba9876543210fedcba9876543210fedcba98")
Completed(("git",), 0, b"", b"")
print(compiled)
"""
    done = subprocess.run((sys.executable, "-P", "-c", program), capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()


T = TypeVar("T")


def handed_over(preloader: Preloader, act: Callable[[], T]) -> tuple[bool, T]:
    """Return whether a waiting process ran `act`, and the result of `act`."""
    before = preloader.waiting()
    got = act()
    until(lambda: len(preloader.waiting()) == 2)
    return preloader.waiting() != before, got


def agent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a program as Claude Code that reports how it was started."""
    program, told = folder / "claude", folder / "told.json"
    program.write_text(
        f"{shebang()}import json, os, sys\n"
        "if sys.argv[1:] == ['--version']:\n    print('2.1.197 (Claude Code)'); sys.exit()\n"
        f"json.dump([os.getpid(), sys.argv[1:], os.getcwd(), dict(os.environ)], open({str(told)!r}, 'w'))\n"
    )
    program.chmod(0o700)
    monkeypatch.setenv("SMART_FORK_CLAUDE", str(program))
    monkeypatch.setenv("SMART_FORK_CHECK_LOGIN", "false")
    return told


@pytest.mark.parametrize(
    "words",
    thorough_except_first(["list --json", "show 01234567", "list a b", "list", "find --limit 0 x", "active --json"], 3),
)
def test_a_command_prints_and_ends_as_without_a_preloader(preloader, monkeypatch, tmp_path, words):
    waited, sooner = handed_over(preloader, lambda: ran(*words.split(), cwd=tmp_path))
    assert waited
    monkeypatch.setenv(VARIABLE, "off")
    by_itself = ran(*words.split(), cwd=tmp_path)
    assert (sooner.returncode, sooner.stdout, sooner.stderr) == (
        by_itself.returncode, by_itself.stdout, by_itself.stderr,
    )  # fmt: skip


def test_it_reads_the_callers_input(preloader, tmp_path):
    waited, got = handed_over(preloader, lambda: ran("spawn", "-", "--json", input='{"a": 1}', cwd=tmp_path))
    assert (waited, got.returncode) == (True, 2)
    assert "list" in got.stdout


def test_the_callers_own_process_becomes_the_agent_with_its_directory_and_variables(preloader, monkeypatch, tmp_path):
    told = agent(tmp_path, monkeypatch)
    monkeypatch.setenv("OF_THE_CALLER", "yes\nand no")
    caller = subprocess.Popen((*PROGRAM, "new", "--in", "here", "say hello"), cwd=tmp_path, stderr=subprocess.PIPE)
    _, err = caller.communicate(timeout=60)
    assert caller.returncode == 0, err
    process, _, directory, variables = json.loads(told.read_text())
    assert (process, directory, variables["OF_THE_CALLER"]) == (caller.pid, str(tmp_path), "yes\nand no")


def test_the_callers_limits_hold_for_what_it_starts(preloader, monkeypatch, tmp_path):
    told = tmp_path / "limits"
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\nulimit -n >{told}\necho '2.1.197 (Claude Code)'\n")
    program.chmod(0o700)
    monkeypatch.setenv("SMART_FORK_CLAUDE", str(program))
    limited = ("sh", "-c", 'ulimit -n 200; exec "$@"', "sh", *PROGRAM, "agents")
    waited, got = handed_over(
        preloader, lambda: subprocess.run(limited, capture_output=True, cwd=tmp_path, check=False)
    )
    assert waited, got.stderr
    assert told.read_text() == "200\n"


@pytest.mark.thorough
def test_a_python_with_options_of_its_own_runs_its_command_itself(preloader, tmp_path):
    strict = (sys.executable, "-W", "error::ResourceWarning", *PROGRAM[1:], "list")
    waited, got = handed_over(preloader, lambda: subprocess.run(strict, capture_output=True, cwd=tmp_path, check=False))
    assert (waited, got.returncode) == (False, 0), got.stderr


def test_an_agent_that_cannot_be_started_is_an_error_and_leaves_no_worker(preloader, monkeypatch, tmp_path):
    agent(tmp_path, monkeypatch)
    program = tmp_path / "claude"
    program.write_text("#!/no/such/interpreter\n")
    got = ran("new", "--in", "here", "say hello", cwd=tmp_path)
    assert got.returncode == 1
    assert "claude" in got.stderr
    assert "Traceback" not in got.stderr
    assert json.loads(ran("active", "--json", cwd=tmp_path).stdout)["workers"] == []


def end_by(caller: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal until it ends the caller, as a person does: Python may swallow one while it begins to read.

    The caller's input stays open until then, because its end would end the command, too.
    """
    while caller.poll() is None:
        caller.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            caller.wait(5)
    caller.communicate()


def test_ctrl_c_reaches_the_command(preloader, interruptible, tmp_path):
    caller = subprocess.Popen((*PROGRAM, "spawn", "-"), stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    until(lambda: serving(preloader, tmp_path))
    end_by(caller, signal.SIGINT)
    assert caller.returncode in (130, -signal.SIGINT)  # as a program that has not begun yet


@pytest.mark.parametrize("number", thorough_except_first([signal.SIGTERM, signal.SIGHUP]))
def test_a_caller_that_is_ended_by_a_signal_ends_by_it_with_its_command(preloader, interruptible, tmp_path, number):
    caller = subprocess.Popen((*PROGRAM, "spawn", "-"), stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    until(lambda: serving(preloader, tmp_path))
    end_by(caller, number)
    assert caller.returncode == -number
    until(lambda: len(preloader.waiting()) == 2)


def test_a_process_that_is_killed_while_it_waits_is_replaced(preloader, tmp_path):
    before = preloader.waiting()
    for process in before:
        os.kill(process, signal.SIGKILL)
    until(lambda: len(preloader.waiting()) == 2 and not preloader.waiting() & before)
    waited, got = handed_over(preloader, lambda: ran("list", cwd=tmp_path))
    assert (waited, got.returncode) == (True, 0)


def test_a_command_ends_with_a_caller_that_is_killed(preloader, tmp_path):
    caller = subprocess.Popen((*PROGRAM, "spawn", "-"), stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    until(lambda: len(preloader.waiting()) == 3)
    caller.kill()
    caller.communicate()
    until(lambda: len(preloader.waiting()) == 2)


@pytest.mark.parametrize("name", ["PYTHONUTF8", "LD_LIBRARY_PATH"])
def test_what_a_process_reads_only_at_its_start_has_a_preloader_of_its_own(preloader, monkeypatch, tmp_path, name):
    same = client.code()
    monkeypatch.setenv(name, "1")
    waited, got = handed_over(preloader, lambda: ran("list", cwd=tmp_path))
    assert (waited, got.returncode) == (False, 0)
    assert client.code() != same


@pytest.mark.parametrize(("name", "value"), [("LC_ALL", "C.UTF-8"), ("LC_ALL", "C"), ("LANG", "C"), ("PATH", "/bin")])
def test_another_language_or_path_in_a_terminal_does_not_make_its_commands_slow(
    preloader, monkeypatch, tmp_path, name, value
):
    if value == "C" and not sys.executable.isascii():
        pytest.skip("Python reads its own paths as ASCII with this setting")
    monkeypatch.setenv(name, value)
    waited, sooner = handed_over(preloader, lambda: ran("list", "--project", "/no/ä", cwd=tmp_path))
    monkeypatch.setenv(VARIABLE, "off")
    by_itself = ran("list", "--project", "/no/ä", cwd=tmp_path)

    assert waited
    assert (sooner.returncode, sooner.stdout, sooner.stderr) == (
        by_itself.returncode, by_itself.stdout, by_itself.stderr,
    )  # fmt: skip


def test_a_terminal_of_another_encoding_has_a_preloader_of_its_own(monkeypatch):
    """Python decides the encoding of its streams when it starts."""
    same = client.code()
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "iso8859-1")
    assert client.code() != same


def test_a_process_that_gave_up_rights_may_not_ask(preloader, tmp_path):
    """A sandbox does that with PR_SET_NO_NEW_PRIVS, which cannot be undone."""
    limited = (
        "import ctypes, runpy, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); "
        "sys.argv = ['smart-fork', 'list']; runpy.run_module('smart_fork', run_name='__main__')"
    )
    asks = (sys.executable, "-P", "-c", limited)
    waited, got = handed_over(preloader, lambda: subprocess.run(asks, capture_output=True, cwd=tmp_path, check=False))
    assert (waited, got.returncode) == (False, 0), got.stderr


def test_this_process_may_ask_and_a_forged_request_is_refused(preloader):
    path = client.socket_path()
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        assert line.recv(1) == b"+"
        line.sendall(b"\0" * 7 + b"\x0d" + b"not a command")
        assert line.recv(1) == b"-"
    ours, theirs = socket.socketpair()
    assert may_ask(ours)
    ours.close(), theirs.close()
    assert ran("list").returncode == 0


def test_nobody_else_can_reach_it(preloader):
    assert stat.S_IMODE(Path(client.folder()).stat().st_mode) == 0o700


@pytest.mark.thorough  # many of them; that one is replaced, and that none is waited for, others say
@pytest.mark.timeout(900)  # all drills: 1,000 commands
def test_commands_of_many_callers_are_all_answered_while_the_preloader_is_killed(home, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    (home / ".smart-fork").mkdir(mode=0o700)
    ends: list[tuple[int, str]] = []
    over = threading.Event()

    def kill() -> None:
        for process in psutil.process_iter(["cmdline", "environ"]):
            cmdline, environ = process.info["cmdline"] or [], process.info["environ"] or {}
            if "smart_fork.cli.preload.server" in cmdline and environ.get("HOME") == str(home):
                process.kill()

    def kill_again_and_again() -> None:
        while not over.wait(1):
            kill()

    def ask() -> None:
        for _ in range(full_or_sample(50, 3)):
            got = ran("list", "--json")
            ends.append((got.returncode, got.stderr))

    killer = threading.Thread(target=kill_again_and_again)
    callers = [threading.Thread(target=ask) for _ in range(full_or_sample(20, 4))]
    for one in (killer, *callers):
        one.start()
    for one in callers:
        one.join()
    over.set()
    killer.join()
    kill()
    assert {end for end in ends if end[0] != 0 and "was killed" not in end[1]} == set()


def test_a_preloader_that_hangs_is_left_alone_after_a_moment(home, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    Path(client.folder()).mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(client.socket_path() or "")
        silent.listen()
        got = ran("list")
    assert got.returncode == 0
    assert "The preloader does not answer" in got.stderr


def test_a_stale_socket_is_no_preloader(home, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("SMART_FORK_BACKGROUND", "0")  # no command begins another one
    Path(client.folder()).mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(client.socket_path() or "")
    assert ran("list").returncode == 0


def test_a_home_with_a_long_path_has_none(monkeypatch, tmp_path):
    monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path / ("x" * 100)))
    assert client.socket_path() is None


def test_each_home_and_each_change_of_the_code_has_a_preloader_of_its_own(monkeypatch, tmp_path):
    first = client.socket_path()
    monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path))
    assert client.socket_path() != first
    monkeypatch.setattr(client, "_last_change", lambda package: 1)
    before = client.code()
    monkeypatch.setattr(client, "_last_change", lambda package: 2)
    assert client.code() != before


def test_it_ends_when_nobody_asks_and_leaves_nothing(home, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    (home / ".smart-fork").mkdir(mode=0o700)
    brief = "import smart_fork.cli.preload.server as one; one.IDLE_SECONDS = one.LOOK_SECONDS = 0.1; one._load = lambda: None; one.main()"
    subprocess.run((sys.executable, "-P", "-c", brief), check=True, timeout=120)
    assert list(Path(client.folder()).iterdir()) == []


@pytest.mark.thorough
def test_looking_at_something_starts_none_where_nothing_is_kept(home, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    assert ran("list").returncode == 0
    assert not (home / ".smart-fork").exists()


def test_the_next_command_begins_another_where_one_was_killed(home, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv("SMART_FORK_BACKGROUND", raising=False)
    (home / ".smart-fork").mkdir(mode=0o700)
    leave_a_killed_one()
    others = set(psutil.Process().children())

    start_preloader()

    (another,) = until(lambda: set(psutil.Process().children()) - others)
    until(lambda: "smart_fork.cli.preload.server" in command_line(another))
    another.kill()
    another.wait()


def serving(preloader: Preloader, folder: Path) -> list[psutil.Process]:
    """Return the processes of the preloader that serve an agent in `folder`."""

    def is_there(one: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            return one.cwd() == str(folder)
        return False

    return [one for one in psutil.Process(preloader.process.pid).children() if is_there(one)]


def test_a_server_goes_on_in_a_process_that_waited(preloader, tmp_path):
    """The server answers input that was read before, and ends with its input."""
    with McpProcess((*PROGRAM, "mcp"), cwd=tmp_path, env=os.environ) as server:
        assert [] == serving(preloader, tmp_path), "the beginning needs none"
        assert [] == server.call("list_sessions")["sessions"]
        assert 1 == len(serving(preloader, tmp_path))
        assert {} == server._ask("ping")
        assert 0 == server.end()
        until(lambda: not serving(preloader, tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_server_and_the_process_that_waited(preloader, tmp_path, number):
    with McpProcess((*PROGRAM, "mcp"), cwd=tmp_path, env=os.environ) as server:
        server.call("list_sessions")
        assert serving(preloader, tmp_path)
        server.process.send_signal(number)

        assert -number == server.process.wait(60)
        until(lambda: not serving(preloader, tmp_path))


@pytest.mark.parametrize("ignored", thorough_except_first([True, False]))
def test_a_signal_that_the_caller_ignores_does_not_end_its_command(preloader, tmp_path, ignored):
    """A command after ``nohup`` is an example. It does not matter which signals the preloader itself ignores."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        caller = subprocess.Popen((*PROGRAM, "spawn", "-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path)
        (command,) = until(lambda: serving(preloader, tmp_path))
        if ignored:
            caller.send_signal(signal.SIGHUP)
            caller.communicate(b"{}", timeout=120)
        else:
            end_by(caller, signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert caller.returncode == (2 if ignored else -signal.SIGHUP)
    until(lambda: not command.is_running())
