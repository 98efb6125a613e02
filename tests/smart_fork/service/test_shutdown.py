"""Ending a running service, with real processes in its place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from indexer.safe_files import state_home
from smart_fork.cli.service import instance
from smart_fork.cli.service.instance import Address, announced, publish
from smart_fork.errors import ProgramFailed
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures

HOLDS = (
    "import signal; from smart_fork.cli.service import instance; assert instance.hold()\nprint('ready', flush=True)\n"
)
ENDS = f"{HOLDS}signal.pause()"
STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{HOLDS}while True: signal.pause()"


@pytest.fixture
def serving(home) -> Iterator[Callable[..., subprocess.Popen]]:
    """Return a function that starts a process with the service's written address. It ends with the test."""
    started: list[subprocess.Popen] = []
    state_home().mkdir()

    def start(code: str = ENDS) -> subprocess.Popen:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        publish(Address("127.0.0.1", 1, process.pid, "1", "", str(state_home() / "service.sock")))
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_service_that_runs_is_ended(run, serving):  # noqa: F811
    """R-070: it is no error if no service runs."""
    service = serving()

    stopped = run("service", "stop")

    assert (0, "The service was stopped.\n") == (stopped.code, stopped.out)
    assert -15 == service.wait(120)
    assert announced() is None
    assert (0, {"stopped": False}) == ((again := run("service", "stop", "--json")).code, json.loads(again.out))
    assert "No service runs." in run("service", "stop").out


def test_one_that_does_not_listen_is_ended_by_the_system(serving, monkeypatch):
    """R-070."""
    monkeypatch.setattr(instance, "GRACE_SECONDS", 0.1)
    service = serving(STUBBORN)

    assert instance.stop()
    assert -9 == service.wait(120)


def test_what_one_that_died_has_left_is_cleared_away(serving):
    """R-070."""
    service = serving()
    (state_home() / "service.sock").touch()
    service.kill()
    service.wait()

    assert not instance.stop()
    assert announced() is None
    assert ["service.lock"] == [path.name for path in state_home().iterdir()]


def test_a_process_that_only_has_its_number_goes_on(serving):
    """X-003."""
    other = serving("import signal; print('ready', flush=True); signal.pause()")

    assert not instance.stop()
    assert other.poll() is None
    assert announced() is None


def test_one_that_is_just_starting_is_ended_and_that_of_another_home_is_not(serving, home, monkeypatch):
    """The starting service has not written its address yet."""
    own = serving()
    (state_home() / "service.json").unlink()
    monkeypatch.setenv("SMART_FORK_HOME", str(home / "other"))
    state_home().mkdir()
    other = serving()
    monkeypatch.delenv("SMART_FORK_HOME")

    assert instance.stop()
    assert -15 == own.wait(120)
    assert not instance.stop()
    assert other.poll() is None


def test_one_that_only_another_container_sees_is_not_ended(home, monkeypatch):
    """The system gives no process id for it."""
    monkeypatch.setattr(instance, "holder", lambda: 0)

    with pytest.raises(ProgramFailed, match="another container"):
        instance.stop()


def test_a_home_has_one_service_at_a_time(serving):
    own = serving()

    assert own.pid == instance.holder()
    assert not instance.hold()
    own.kill()
    own.wait()
    assert instance.holder() is None


def test_a_service_that_asks_who_runs_it_still_has_the_lock(serving):
    own = serving(
        f"{HOLDS.splitlines()[0]}; import os; assert instance.holder() == os.getpid()\nprint('ready', flush=True)\nsignal.pause()"
    )

    assert own.pid == instance.holder()


def test_one_that_is_told_to_end_before_it_is_up_ends_well(home):
    """After any exit code but 0, launchd would restart it."""
    code = """
import signal
from smart_fork.cli.service import server
def listen(*_, **__):
    print("ready", flush=True)
    signal.pause()
server.listen = listen
server.serve()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        assert instance.stop()
        assert 0 == process.wait(60)
    assert not (state_home() / "service-starts.json").exists()
