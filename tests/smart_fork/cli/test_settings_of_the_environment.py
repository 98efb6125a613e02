"""An environment variable with an invalid value is refused, not ignored."""

from __future__ import annotations

import json

from indexer.environment import VARIABLES, Setting
from tests.support.cases import parametrize_subtests

NONSENSE = {
    **dict.fromkeys(("INDEXING", "BACKGROUND", "KEEP_TRANSCRIPTS", "CHECKPOINTS", "PRELOAD", "SERVICE"), "maybe"),
    **dict.fromkeys(("QMD_SECONDS", "KEEP_MEGABYTES", "RECALL_MS", "MAX_WORKERS"), "-1"),
    "CHECK_LOGIN": "2",
    "DEVICE": "gpu",
    "TOOLS": "some",
}


@parametrize_subtests(("name", "value"), NONSENSE.items())
def test_a_command_refuses_it_and_says_what_is_allowed(run, monkeypatch, name, value):
    with monkeypatch.context() as patched:
        patched.setenv(f"SMART_FORK_{name}", value)
        done = run("status")

    assert 2 == done.code
    assert f"SMART_FORK_{name} must be " in done.err
    assert repr(value) in done.err
    assert "smart-fork config" in done.err


def test_each_value_that_is_allowed_is_taken_in_any_case_and_with_blanks():
    said = {one: Setting.ALLOWED[one][0] for one in VARIABLES if one in Setting.ALLOWED}

    assert {f"SMART_FORK_{name}" for name in NONSENSE} == set(said)
    for name, pattern in said.items():
        for value in ("", "  ", *(f" {word.upper()} " for word in pattern.split("|") if word.isalnum())):
            assert "" == name.fault({name: value})
    taken = {"DEVICE": "cuda:1", "QMD_SECONDS": "20", "MAX_WORKERS": "0"}
    assert [""] * 3 == [
        name.fault({name: taken[name.removeprefix("SMART_FORK_")]}) for name in said if name[11:] in taken
    ]


def test_what_shows_settings_runs_with_it_and_names_it(run, monkeypatch):
    monkeypatch.setenv("SMART_FORK_INDEXING", "maybe")

    assert 0 == run("config").code
    checks = json.loads(run("doctor", "--json").out)["checks"]
    (told,) = [one for one in checks if one["name"] == "settings"]
    assert "SMART_FORK_INDEXING must be true or false, not 'maybe'" == told["detail"]
    assert not told["ok"]
    assert told["next_step"]
