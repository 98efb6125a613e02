"""The command ``service``."""

from __future__ import annotations

import json
import plistlib
import sys

import pytest

from smart_fork.cli.service import installation
from smart_fork.cli.service.supervisors import LABEL
from tests.smart_fork.service.service_files import FakeLaunchd, FakeSystemd, read_as_systemd
from tests.smart_fork.test_docs import assert_documented


@pytest.fixture
def systemd(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    fake = FakeSystemd()
    monkeypatch.setattr(installation, "Processes", lambda: fake)
    return fake


@pytest.fixture
def launchd(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    fake = FakeLaunchd()
    monkeypatch.setattr(installation, "Processes", lambda: fake)
    return fake


def test_install_look_and_remove_with_launchd(run, launchd, home):
    """F-200, F-203."""
    done = run("service", "install", "--port", "5111", "--every", "15m")
    assert (0, "") == (done.code, done.err)
    assert "port 5111, indexed every 15m" in done.out
    job = plistlib.loads((home / f"Library/LaunchAgents/{LABEL}.plist").read_bytes())
    assert ["serve", "--port", "5111"] == job["ProgramArguments"][1:]
    assert "15m" == job["EnvironmentVariables"]["SMART_FORK_INDEX_CRON"]

    assert "runs, process 42" in run("service", "status").out
    assert "port 5111, indexed every 15m" in run("service", "install").out, "an upgrade keeps them"
    assert "was removed" in run("service", "uninstall").out
    again = run("service", "uninstall")
    assert (0, "No service is installed.\n") == (again.code, again.out)


def test_what_goes_wrong_while_starting_is_told(run, launchd):
    launchd.fails = {"bootstrap": "Bootstrap failed: 5"}

    done = run("service", "install", "--json")

    assert 1 == done.code
    assert_documented("errors", json.loads(done.out))


def test_status_says_whether_it_runs(run, systemd):
    missing = run("service", "status")
    assert 3 == missing.code
    assert "smart-fork service install" in missing.err

    systemd.answers["loginctl"] = (0, "Linger=no", "")
    assert "enable-linger" in run("service", "install").err
    assert 0 == run("service", "status").code

    systemd.answers["show"] = (0, "LoadState=loaded\nActiveState=failed\nResult=exit-code\nExecMainStatus=1", "")
    stopped = run("service", "status")
    assert 1 == stopped.code
    assert "does not run; last exit: exit-code, status 1" in stopped.out
    assert "say why" in stopped.err


def test_status_of_damaged_settings_says_what_to_do(run, systemd, home):
    run("service", "install")
    (home / ".smart-fork/service-settings.json").write_text("[]")

    assert "rewrites them" in run("service", "status").err


def test_json(run, systemd):
    assert_documented("service status", status := json.loads(run("service", "status", "--json").out))
    assert not status["installed"]
    assert_documented("service install", installed := json.loads(run("service", "install", "--json").out))
    assert_documented("service status", installed["service"])
    assert installed["service"]["running"]
    assert_documented("service print", json.loads(run("service", "print", "--json").out))
    assert {"removed": True} == json.loads(run("service", "uninstall", "--json").out)
    assert_documented("service uninstall", {"removed": False})


@pytest.mark.parametrize("words", [("print",), ("install", "--print")])
def test_printing_changes_nothing(run, systemd, home, words):
    """F-206."""
    before = sorted(home.rglob("*"))

    unit = run("service", *words, "--port", "7000", "--every", "0 3 * * *").out
    agent = run("service", *words, "--kind", "launchd").out

    said = read_as_systemd(unit)
    assert ["serve", "--port", "7000"] == said["ExecStart"][1:]
    assert "SMART_FORK_INDEX_CRON=0 3 * * *" in said["Environment"]
    assert LABEL == plistlib.loads(agent.encode())["Label"]
    assert before == sorted(home.rglob("*"))
    assert [] == systemd.ran


@pytest.mark.parametrize(
    "words", [("--every", "1d"), ("--every", "0m"), ("--port", "0"), ("--port", "65536"), ("--port", "x")]
)
def test_a_wrong_setting_is_refused_before_anything_is_written(run, systemd, home, words):
    """F-205."""
    done = run("service", "install", *words)

    assert 2 == done.code
    assert [] == systemd.ran
    assert not (home / ".config").exists()


def test_a_system_with_neither_is_told_so(run, monkeypatch, home):
    """F-206."""
    monkeypatch.setattr(sys, "platform", "freebsd14")

    done = run("service", "install")
    assert 1 == done.code
    assert "nothing was installed" in done.err
    assert "smart-fork serve" in done.err
    assert 1 == run("service", "status").code
    assert 0 == run("service", "uninstall").code
    assert 0 == run("service", "print", "--kind", "systemd").code


def test_an_agent_is_not_installed_on_linux(run, systemd, home):
    """F-206."""
    done = run("service", "install", "--kind", "launchd")

    assert 1 == done.code
    assert "nothing was installed" in done.err
    assert [] == systemd.ran
    assert not (home / "Library").exists()
