"""What the process that all report to is told of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.telling import told

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import os, pytest

@pytest.fixture
def broken():
    yield
    raise OSError("afterwards")

def test_passes(): pass
def test_fails(): assert 0, "why"
def test_is_left_out(): pytest.skip("for now")
def test_fails_afterwards(broken): pass
@pytest.mark.xfail(reason="known", strict=True)
def test_is_known_to_fail(): assert 0
def test_dies(): os._exit(3)
"""


def reports(**outcomes):
    return [
        SimpleNamespace(when=when, passed=outcome, duration=0.25, processor=0.5, keywords={"a": 1}, sections=["x"])
        for when, outcome in outcomes.items()
    ]


def test_of_one_that_has_passed_one_report_has_the_time_of_all():
    (one,) = told(reports(setup=True, call=True, teardown=True))

    assert ("call", 0.75, 0.5, {}, []) == (one.when, one.duration, one.processor, one.keywords, one.sections)


def test_of_others_all_is_told():
    for outcomes in ({"setup": False, "teardown": True}, {"setup": True, "call": True, "teardown": False}):
        assert told(some := reports(**outcomes)) == some


@pytest.mark.thorough  # of the run itself; what is told is above
def test_a_run_of_several_processes_says_of_each_test_that_has_not_passed_what_happened(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_all.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-n1", "-p", "tests.durations", "-p", "tests.telling", "-ra"]

    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    summary = done.stdout.rpartition("short test summary info")[2].splitlines()
    # where CI is set, each is followed by more lines of why
    assert [line.partition(" - ")[0] for line in summary if line.partition(" ")[0].isupper()] == [
        "SKIPPED [1] test_all.py:11: for now",
        "XFAIL test_all.py::test_is_known_to_fail",
        "ERROR test_all.py::test_fails_afterwards",
        "FAILED test_all.py::test_fails",
        "FAILED test_all.py::test_dies",
    ]
    assert "2 failed, 2 passed" in done.stdout
