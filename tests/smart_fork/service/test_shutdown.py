"""Ending a service that runs, with real processes in its place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from smart_fork.service import shutdown
from smart_fork.service.address import Address, announced, publish
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures

ENDS = "import signal\nprint('ready', flush=True)\nsignal.pause()"
STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    {ENDS.splitlines()[1]}; signal.pause()"


@pytest.fixture
def serving(home) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a process that is announced as the service; it ends with the test."""
    started: list[subprocess.Popen] = []

    def start(code: str = ENDS, *, earlier: timedelta = timedelta(0), port: int = 1) -> subprocess.Popen:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        said = (datetime.now(UTC) - earlier).isoformat(timespec="seconds")
        publish(Address("127.0.0.1", port, process.pid, "1", said))
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_service_that_runs_is_ended(run, serving):  # noqa: F811
    """R-070: and where none runs that is no error."""
    service = serving()

    stopped = run("service", "stop")

    assert (0, "The service was stopped.\n") == (stopped.code, stopped.out)
    assert -15 == service.wait(120)
    assert announced() is None
    assert (0, {"stopped": False}) == ((again := run("service", "stop", "--json")).code, json.loads(again.out))
    assert "No service runs." in run("service", "stop").out


def test_one_that_does_not_listen_is_ended_by_the_system(serving, monkeypatch):
    """R-070."""
    monkeypatch.setattr(shutdown, "GRACE_SECONDS", 0.1)
    service = serving(STUBBORN)

    assert shutdown.stop()
    assert -9 == service.wait(120)


def test_what_one_that_died_has_left_is_cleared_away(serving):
    """R-070."""
    service = serving()
    service.kill()
    service.wait()

    assert not shutdown.stop()
    assert announced() is None


def test_a_process_that_has_its_number_now_goes_on(serving):
    """X-003."""
    stranger = serving(earlier=timedelta(hours=1))

    assert not shutdown.stop()
    assert stranger.poll() is None
    assert announced() is None


def test_a_service_that_proves_to_be_ours_is_ended_whatever_the_clock_says(serving, served):
    """The clock may have been set since it was started."""
    service = serving(earlier=timedelta(hours=1), port=served.port)

    assert shutdown.stop()
    assert -15 == service.wait(120)


@pytest.mark.parametrize(
    "words", [["/venv/bin/smart-fork", "serve"], ["-m", "smart_fork", "-v", "serve", "--port", "1"]]
)
def test_one_that_is_just_starting_is_ended_and_that_of_another_home_is_not(words, home, monkeypatch):
    """It has not said yet where it listens."""
    begun = []
    for name in ("own", "other"):
        monkeypatch.setenv("SMART_FORK_HOME", str(home / name))
        # What a program is run with, without the program.
        begun.append(subprocess.Popen([sys.executable, "-c", ENDS, *words], stdout=subprocess.PIPE))
        assert begun[-1].stdout.readline() == b"ready\n"
    own, other = begun
    monkeypatch.setenv("SMART_FORK_HOME", str(home / "own"))

    try:
        assert shutdown.stop()
        assert -15 == own.wait(120)
        assert not shutdown.stop()
        assert other.poll() is None
    finally:
        for one in begun:
            one.kill()
            one.communicate()


@pytest.mark.parametrize(
    "argv",
    [["vim", "smart-fork", "serve"], ["smart-fork", "service"], ["bash", "-c", "smart-fork serve"], ["serve"], [],
     ["python3", "-m", "http.server", "serve"], ["grep", "smart-fork", "serve"]],
)  # fmt: skip
def test_what_only_looks_like_it_is_not_ended(argv):
    """X-003."""
    assert not shutdown._serves(argv)


def test_one_that_is_told_to_end_before_it_is_up_ends_well_and_that_is_no_crash(home):
    code = """
import signal
from pathlib import Path
from smart_fork.service import crashes, lifetime
assert crashes.begin(Path("state"))
lifetime._end_well(Path("state"))
print("ready", flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=home) as process:
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert 0 == process.wait(60)
    assert [] == list((home / "state").iterdir())
