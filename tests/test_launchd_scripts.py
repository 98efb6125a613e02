"""``launchd/install.sh`` and ``launchd/uninstall.sh``, with programs that only write down their arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
AGENT = "Library/LaunchAgents/org.smart-fork.serve.plist"


@pytest.fixture
def checkout(home: Path) -> Path:
    """A copy of what the scripts need, in a folder whose name is not harmless."""
    folder = home / "check out $x 'y'"
    shutil.copytree(ROOT / "launchd", folder / "launchd")
    (folder / "constraints.txt").touch()
    return folder


@pytest.fixture
def programs(home: Path) -> Path:
    """The only PATH: a Mac's uname, and what the scripts themselves need."""
    folder = home / "programs"
    folder.mkdir()
    for name in ("sh", "dirname", "id", "mkdir", "cat", "chmod", "rm"):
        (folder / name).symlink_to(str(shutil.which(name)))
    program(folder / "uname", "echo Darwin")
    return folder


def program(path: Path, body: str = "") -> None:
    """One that writes its name and each argument down, then does `body`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nprintf "<%s>" "${{0##*/}}" "$@" >>"$HOME/ran"; echo >>"$HOME/ran"\n{body}\n')
    path.chmod(0o755)


def run(checkout: Path, programs: Path, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"HOME": os.environ["HOME"], "PATH": str(programs)}
    command = [checkout / "launchd" / script, *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd="/")


def ran(home: Path, *, but: str = "<uname>") -> list[str]:
    path = home / "ran"
    return [line for line in path.read_text().splitlines() if not line.startswith(but)] if path.exists() else []


@pytest.mark.parametrize("where", ["programs", ".local/bin", "check out $x 'y'/.venv/bin"])
def test_installing_calls_the_program_with_the_arguments_as_they_are(checkout, programs, home, where):
    """F-200."""
    program(home / where / "smart-fork")

    done = run(checkout, programs, "install.sh", "--every", "0 3 * * *", "--port", "7000")

    assert (0, "") == (done.returncode, done.stderr)
    assert ["<smart-fork><service><install><--kind><launchd><--every><0 3 * * *><--port><7000>"] == ran(home)


def test_a_missing_program_is_installed_with_uv(checkout, programs, home):
    made = home / ".local/bin/smart-fork"
    program(programs / "uv", f'mkdir -p "{made.parent}"; cat "$0" >"{made}"; chmod +x "{made}"')

    done = run(checkout, programs, "install.sh")

    assert 0 == done.returncode
    assert [
        f"<uv><tool><install><-c><{checkout}/constraints.txt><{checkout}>",
        "<smart-fork><service><install><--kind><launchd>",
    ] == ran(home)


def test_without_uv_pipx_installs_it(checkout, programs, home):
    program(programs / "pipx", f'cat "$0" >"{programs}/smart-fork"; chmod +x "{programs}/smart-fork"')

    run(checkout, programs, "install.sh")

    assert f"<pipx><install><{checkout}>" == ran(home)[0]


def test_without_either_it_says_what_to_install(checkout, programs, home):
    done = run(checkout, programs, "install.sh")

    assert 1 == done.returncode
    assert "Neither uv nor pipx" in done.stderr


def test_elsewhere_than_on_a_mac_nothing_is_installed(checkout, programs, home):
    """F-206."""
    program(programs / "uname", "echo Linux")
    program(programs / "uv")
    program(programs / "smart-fork")

    done = run(checkout, programs, "install.sh")

    assert 1 == done.returncode
    assert "nothing was installed" in done.stderr
    assert [] == ran(home)


def test_printing_works_anywhere_and_installs_nothing(checkout, programs, home):
    """F-206."""
    program(programs / "uname", "echo Linux")
    program(programs / "uv")
    missing = run(checkout, programs, "install.sh", "--print")
    assert 1 == missing.returncode
    assert [] == ran(home)

    program(programs / "smart-fork")
    assert 0 == run(checkout, programs, "install.sh", "--print").returncode
    assert ["<smart-fork><service><install><--kind><launchd><--print>"] == ran(home)


def test_removing_calls_the_program(checkout, programs, home):
    """F-203."""
    program(programs / "smart-fork")

    run(checkout, programs, "uninstall.sh", "--json")

    assert ["<smart-fork><service><uninstall><--json>"] == ran(home)


def test_the_agent_can_be_removed_when_the_program_is_gone(checkout, programs, home):
    """F-203."""
    program(programs / "launchctl", "exit 3")
    nothing = run(checkout, programs, "uninstall.sh")
    assert (0, "No service is installed.\n") == (nothing.returncode, nothing.stdout)

    (home / AGENT).parent.mkdir(parents=True)
    (home / AGENT).touch()
    done = run(checkout, programs, "uninstall.sh")
    assert (0, "The service was removed.\n") == (done.returncode, done.stdout)
    assert not (home / AGENT).exists()
    assert [f"<launchctl><bootout><gui/{os.getuid()}/org.smart-fork.serve>"] == ran(home)


def test_the_scripts_know_the_label():
    from smart_fork.cli.service.supervisors import LABEL

    assert f"label={LABEL}\n" in (ROOT / "launchd/uninstall.sh").read_text()


def test_the_scripts_are_clean():
    if not (shellcheck := shutil.which("shellcheck")):
        pytest.skip("shellcheck is not installed")
    scripts = sorted(path.name for path in (ROOT / "launchd").glob("*.sh"))

    done = subprocess.run(
        [shellcheck, "-x", *(f"launchd/{name}" for name in scripts)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stdout)
