"""One test of many cases."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import parametrize_subtests, thorough_except, thorough_except_first

ROOT = Path(__file__).resolve().parents[2]


def test_every_case_that_fails_is_named_and_the_others_are_tried(tmp_path):
    (tmp_path / "test_three.py").write_text(
        "from tests.support.cases import parametrize_subtests\n"
        "@parametrize_subtests('number, word', [(1, 'a'), (2, 'b'), (3, 'c')])\n"
        "def test_three(number, word):\n    assert number == 2\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    failed = [line.partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith("SUBFAILED")]
    name = "test_three.py::test_three"
    assert [f"SUBFAILED(number=1, word='a') {name}", f"SUBFAILED(number=3, word='c') {name}"] == failed
    assert "1 subtests passed" in done.stdout


@parametrize_subtests("number", [1, 2])
def test_the_cases_share_the_fixtures(home, number):
    assert home.is_dir()
    assert number in (1, 2)


def always(cases):
    """Those that are not thorough."""
    return [case for case in cases if not hasattr(case, "marks")]


def test_all_cases_are_there_and_those_that_are_not_named_are_thorough():
    assert ["a", "b"] == always(thorough_except_first("abc", 2))
    assert [(1, "b")] == always(rows := thorough_except([(0, "a"), (1, "b"), (2, "c")], (1, "b")))
    assert [(0, "a"), (2, "c")] == [case.values for case in rows if hasattr(case, "marks")]


def test_a_case_that_is_named_and_not_there_is_an_error():
    with pytest.raises(ValueError, match=r"no cases: \['d'\]"):
        thorough_except("abc", "a", "d")
