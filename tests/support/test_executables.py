"""Programs that tests run, or write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.executables import shebang

ROOT = Path(__file__).resolve().parents[2]
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


def test_one_runs_where_the_interpreter_lies_in_a_folder_with_blanks_and_a_quote(tmp_path, monkeypatch):
    folder = tmp_path / "it's é"
    folder.mkdir()
    (folder / "python").symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    program = tmp_path / "program"
    program.write_text(f"{shebang('-IS')}import sys\nprint(sys.argv[1:], sys.flags.isolated)\n")
    program.chmod(0o700)

    done = subprocess.run([program, "a b", "--c"], capture_output=True, text=True, check=True)

    assert "['a b', '--c'] 1\n" == done.stdout


def test_no_other_names_the_interpreter_itself():
    begins = "#!" + "{"
    assert [] == [path.name for path in (ROOT / "tests").rglob("*.py") if begins in path.read_text(encoding="utf-8")]
