"""What happens where a program is missing that tests run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REAL = "tests/e2e/test_agents.py"


@pytest.fixture
def without(tmp_path):
    """Runs tests where only git and tmux are installed."""
    for name in ("git", "tmux"):
        (tmp_path / name).symlink_to(shutil.which(name) or "/bin/true")

    def run(*words: str, **env: str) -> tuple[int, str]:
        given = os.environ | {"PATH": str(tmp_path), "SMART_FORK_E2E_CACHE": str(tmp_path / "cache")} | env
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *words]
        done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    return run


@pytest.mark.thorough
def test_where_the_real_agents_cannot_be_installed_the_suite_fails(without):
    code, said = without(REAL)

    assert 1 == code
    assert "npm is not installed. Without it: SMART_FORK_E2E=skip" in said


@pytest.mark.thorough
def test_whoever_has_no_npm_may_leave_them_out(without):
    code, said = without(REAL, SMART_FORK_E2E="skip")

    assert (0, True) == (code, "SMART_FORK_E2E is skip" in said)
    assert "passed" not in said


@pytest.mark.thorough
@pytest.mark.parametrize(("what", "program"), [("tests/e2e/test_page.py", "Chromium"), (REAL, "tmux")])
def test_without_another_program_it_fails_too(without, tmp_path, what, program):
    (tmp_path / "tmux").unlink()
    code, said = without(what)

    assert 1 == code
    assert f"{program} is" in said
    assert "SMART_FORK_E2E=skip" in said
