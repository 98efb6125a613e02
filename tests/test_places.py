"""Workers of the suite run in unusual places."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ODD, TURNS, place_of

ROOT = Path(__file__).resolve().parent.parent
FAILING = """
import os, socket, time

def six():
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError as error:
        return error.strerror

def test_place(home):
    assert not [os.environ.get("LANG"), time.tzname, str(home), six()]
"""


@pytest.mark.parametrize("day", range(3))
def test_each_run_has_all_places(day):
    assert {*TURNS} == {place_of(f"gw{number}", day) for number in range(len(TURNS))}


def test_the_same_worker_is_in_another_place_on_the_next_day():
    assert place_of("gw0", 1) == place_of("gw1", 0) != place_of("gw0", 0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("odd path", f"/{ODD}"),
        ("LANG=C", "'C'"),
        ("TZ=Pacific/Chatham", "'+1245'"),
        ("no IPv6", os.strerror(errno.EAFNOSUPPORT)),
    ],
)
def test_a_failed_test_was_in_its_place_and_names_it(tmp_path, place, shown):
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "conftest.py").symlink_to(ROOT / "tests/conftest.py")
    (tests / "test_place.py").write_text(FAILING)
    command = (sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"))
    env = os.environ | {"SMART_FORK_PLACE": place, "PYTHONPATH": str(ROOT), "COLUMNS": "300"}
    done = subprocess.run(
        (*command, str(tests)), cwd=ROOT, env=env, capture_output=True, text=True, encoding="utf-8", check=False
    )

    assert 1 == done.returncode, done.stdout + done.stderr
    assert shown in done.stdout
    assert f"- Place -{'-' * 10}" in done.stdout
    assert f"\n{place}\n" in done.stdout
