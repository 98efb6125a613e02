"""The property list, the systemd unit, and the kept settings."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

from indexer.safe_files import state_home
from smart_fork.cli.service.supervisors import LABEL, launchd_plist, other_label, systemd_unit
from smart_fork.cli.service.unit_settings import UnitSettings, keep, kept
from smart_fork.errors import Usage
from tests.smart_fork.service.service_files import HOSTILE, read_as_systemd, settings
from tests.support.exhaustive import full_or_sample

HOME = Path("/home/me")
#: Everything but controls, halves of surrogates, and what Unicode says is no character.
TEXT = st.text(st.sampled_from("%\\\"'$ &<") | st.characters(exclude_categories=["Cc", "Cs"], codec="utf-8")).filter(
    lambda text: not any(0xFDD0 <= ord(c) <= 0xFDEF or ord(c) & 0xFFFE == 0xFFFE for c in text)
)
ANY = st.builds(
    lambda program, state, path, text, port: UnitSettings(
        f"/{program}", port, {"SMART_FORK_HOME": f"/{state}", "PATH": path, "LANG": text}
    ),
    TEXT, TEXT, TEXT, TEXT, st.integers(1, 65535),
)  # fmt: skip


def assert_says(unit: str, wanted: UnitSettings) -> None:
    said = read_as_systemd(unit)
    skipped = 0 if said["ExecStart"][0] == wanted.program else 4

    assert ["nice", "-n", "0", "--"][:skipped] == said["ExecStart"][:skipped]
    assert wanted.argv == said["ExecStart"][skipped:]
    assert [f"{name}={text}" for name, text in wanted.environment.items()] == said["Environment"]
    assert [f"{wanted.state}/"] == said["WorkingDirectory"]
    assert [f"append:{wanted.crash_log}"] == said["StandardError"] == said["StandardOutput"]


@tried(max_examples=full_or_sample(60, 15))
@given(ANY)
def test_whatever_a_path_or_a_value_is_systemd_reads_the_same(wanted):
    """F-205, F-207."""
    assert_says(systemd_unit(wanted), wanted)


@given(ANY)
def test_whatever_a_path_or_a_value_is_launchd_reads_the_same(wanted):
    """F-205."""
    content = launchd_plist(wanted)
    job = plistlib.loads(content)

    assert wanted.argv == job["ProgramArguments"]
    assert dict(wanted.environment) == job["EnvironmentVariables"]
    assert str(wanted.state) == job["WorkingDirectory"]
    assert str(wanted.crash_log) == job["StandardErrorPath"] == job["StandardOutPath"]


@pytest.mark.parametrize("name", HOSTILE)
def test_known_bad_names_survive_both_and_are_kept(name, home):
    wanted = settings(HOME, name)

    assert_says(systemd_unit(wanted), wanted)
    keep(wanted)
    assert wanted == kept()


@pytest.mark.parametrize(
    "text", ["two\nlines", "\0", "\x1b[31m", "\r", "\x7f", "\x85", "\udc80", "\ufffe", "\U0001ffff"]
)
@pytest.mark.parametrize("where", ["program", "environment", "state"])
def test_what_cannot_be_written_is_refused(text, where):
    more = {
        "program": {"program": f"/{text}"},
        "environment": {"environment": {"LANG": text}},
        "state": {"environment": {"SMART_FORK_HOME": f"/{text}"}},
    }[where]

    with pytest.raises(Usage, match="cannot be written"):
        settings(HOME, **more)


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "Ä", "A\n"])
def test_a_variable_has_the_name_of_one(name):
    with pytest.raises(Usage):
        settings(HOME, environment={name: "x"})


def test_the_agent_starts_at_login_is_throttled_and_stops_when_it_ended_well():
    """F-201."""
    job = plistlib.loads(launchd_plist(settings(HOME)))

    assert LABEL == job["Label"]
    assert job["RunAtLoad"] is True
    assert {"SuccessfulExit": False} == job["KeepAlive"]
    assert job["ThrottleInterval"] >= 10
    assert 0o077 == job["Umask"]
    assert "Interactive" == job["ProcessType"]
    assert not {"Nice", "LowPriorityIO"} & set(job), "forks would have the same, for good"
    assert job["AbandonProcessGroup"] is True, "forks end with the service"


def test_the_unit_gives_up_after_a_few_failures():
    """F-207: five restarts must fit into the interval, or a loop of crashes would never end."""
    said = read_as_systemd(systemd_unit(settings(HOME)))

    assert ["on-failure"] == said["Restart"]
    assert int(said["RestartSec"][0]) * int(said["StartLimitBurst"][0]) < int(said["StartLimitIntervalSec"][0])
    assert ["process"] == said["KillMode"], "forks end with the service"
    assert ["0077"] == said["UMask"]
    assert not {name for name in said if name.startswith(("Nice", "IOScheduling", "CPU"))}, "forks would have the same"


def test_settings_that_were_edited_by_hand_are_understood(home):
    keep(settings(home))
    file = state_home() / "service-settings.json"
    given = json.loads(file.read_text())
    given["environment"] |= {"HTTPS_PROXY": "http://proxy", "N": 7}
    file.write_text(json.dumps(given, indent=4))

    assert {"HTTPS_PROXY": "http://proxy", "N": "7"}.items() <= kept().environment.items()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "7", '{"program": "/x", "port": "x", "environment": {}}', '{"program": "/x", "port": 1, "environment": 7}'],
)  # fmt: skip
def test_damaged_settings_are_none(home, text):
    keep(settings(home))
    (state_home() / "service-settings.json").write_text(text)
    with pytest.raises(ValueError):
        kept()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"<plist>", b"\xff\xfe", b"bplist00", plistlib.dumps([1]), plistlib.dumps({"Label": LABEL}),
        plistlib.dumps({"Label": LABEL, "ProgramArguments": [1, "serve"]}),
        plistlib.dumps({"Label": LABEL, "ProgramArguments": ["/x", "serve"], "EnvironmentVariables": {"A": 1}}),
        plistlib.dumps({"Label": 1, "ProgramArguments": ["/x", "serve"]}),
        plistlib.dumps({"Label": LABEL, "ProgramArguments": ["/x"]}),
    ],
)  # fmt: skip
def test_a_damaged_agent_is_not_ours(content):
    assert "" == other_label(content, HOME)


def test_another_agent_that_runs_the_service_is_recognised():
    """F-202."""

    def labelled(label: str, *words: str, **variables: str) -> str:
        agent = {"Label": label, "ProgramArguments": list(words), "EnvironmentVariables": variables}
        return other_label(plistlib.dumps(agent), state_home())

    assert "old" == labelled("old", "/opt/bin/smart-fork", "serve")
    assert "old" == labelled("old", "/usr/bin/env", "smart-fork", "-v", "serve", "--port", "1")
    assert "" == labelled(LABEL, "/opt/bin/smart-fork", "serve")
    assert "" == labelled("old", "/opt/bin/smart-fork", "index", "run")
    assert "" == labelled("old", "/opt/bin/other", "serve")
    assert "" == labelled("old", "/opt/bin/smart-fork", "serve", SMART_FORK_HOME="/other"), "another home's"
    assert "old" == labelled("old", "/opt/bin/smart-fork", "serve", SMART_FORK_HOME=str(state_home()))


@pytest.mark.parametrize("name", ["plain", *HOSTILE])
def test_systemd_itself_accepts_the_unit(name, tmp_path, monkeypatch):
    """F-205, F-207."""
    if not (analyze := shutil.which("systemd-analyze")):
        pytest.skip("systemd-analyze is not installed")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    wanted = settings(tmp_path, name)
    program = Path(wanted.program)
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "smart-fork.service"
    unit.write_text(systemd_unit(wanted))

    done = subprocess.run(
        [analyze, "--user", "verify", unit], env=os.environ, capture_output=True, text=True, check=False
    )

    said = (done.stdout + done.stderr).splitlines()  # also of the distribution's units, which it loads
    assert (0, []) == (done.returncode, [line for line in said if unit.stem in line])


@pytest.mark.parametrize("name", ["plain", *HOSTILE])
def test_macos_itself_accepts_the_agent(name, tmp_path):
    """F-206."""
    if not (plutil := shutil.which("plutil")):
        pytest.skip("plutil is only on macOS")
    path = tmp_path / "agent.plist"
    path.write_bytes(launchd_plist(settings(tmp_path, name)))

    assert 0 == subprocess.run([plutil, "-lint", path], check=False).returncode
