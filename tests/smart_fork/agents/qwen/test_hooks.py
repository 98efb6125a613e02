"""Tests of recognizing a begun log of Qwen Code in a hook, which does not read the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.hooks.hints import _BEGUN, _is_begun

LOGS = Path(__file__).resolve().parents[3] / "fixtures" / "qwen"


@pytest.mark.parametrize("name", ["tools", "fork", "compressed"])
def test_a_session_that_goes_on_or_is_a_fork_has_begun(name, tmp_path):
    marks = (*_BEGUN, *(mark.encode() for mark in AGENTS["qwen"].hooks.begun))
    lines = (LOGS / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
    first = tmp_path / "first.jsonl"
    first.write_bytes(lines[0])

    assert _is_begun(str(LOGS / f"{name}.jsonl"), marks)
    assert (name == "fork") == _is_begun(str(first), marks)
