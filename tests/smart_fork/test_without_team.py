"""The team is one folder: a copy of the product without it finds, lists and checks as before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import indexer
import smart_fork
from indexer.safe_files import state_home

pytestmark = pytest.mark.slow


@pytest.fixture
def run(home, tmp_path):
    """Runs a command of a copy of the product from which the team's folder was deleted."""
    copy = tmp_path / "copy"
    for package in (indexer, smart_fork):
        folder = Path(package.__file__).parent
        shutil.copytree(folder, copy / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(copy / "smart_fork" / "team")
    env = {**os.environ, "PYTHONPATH": str(copy), "SMART_FORK_PRELOAD": "off"}

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "smart_fork.cli", *words]
        return subprocess.run(program, env=env, cwd=home, capture_output=True, text=True, check=False)

    return command


def test_commands_work_without_the_folder_of_the_team(run):
    listed, helped = run("list", "--json"), run("--help")
    assert (0, 0) == (listed.returncode, helped.returncode), listed.stderr + helped.stderr
    assert ("Share sessions with a team" in helped.stdout, "Move your sessions" in helped.stdout) == (False, True)


def test_asking_for_a_team_that_is_not_installed_is_refused_in_words(run):
    refused = run("list", "--team"), run("find", "retry", "--team")
    assert [2, 2] == [one.returncode for one in refused]
    assert all("not a part of this installation" in one.stderr for one in refused), refused


def test_what_a_login_left_behind_asks_nobody(run):
    tokens = state_home() / "team" / "tokens.json"
    tokens.parent.mkdir(parents=True, exist_ok=True)
    tokens.write_text('{"version": 1, "servers": {}}')
    assert "No module named" not in run("doctor").stderr + run("find", "retry").stderr
