"""Logs that their agent deletes: setup warns before, and keeps copies if the person wants them."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from indexer import kept_logs
from smart_fork import doctor
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.log_retention import Deletion
from smart_fork.cli.setup.ledger import Ledger
from tests.indexer.transcripts.records import gemini_log, spoken
from tests.smart_fork.test_docs import assert_documented
from tests.smart_fork.world import WordsModel

DAY = 86_400


@pytest.fixture
def logs(world, shop) -> list[str]:
    """Write sessions of Claude Code that ended 40, 26 and 2 days ago."""
    found = []
    for days in (40, 26, 2):
        found.append(world.claude(shop, "mend it", "done"))
        moment = time.time() - days * DAY
        os.utime(world.log_of(found[-1]), (moment, moment))
    return found


@pytest.fixture
def asked(monkeypatch):
    """Return a function that answers at a terminal with the given words, and the questions that were asked."""
    questions: list[str] = []

    def answers(*said: str) -> list[str]:
        left = list(said)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("typer.confirm", lambda text, **_: (questions.append(text), left.pop(0) == "y")[1])
        monkeypatch.setattr("typer.prompt", lambda text, **_: (questions.append(text), left.pop(0))[1])
        return questions

    return answers


def settle(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def step(answer: dict, what: str = "keep") -> dict:
    return next(one for one in answer["steps"] if one["step"] == what)


def test_what_goes_and_when_is_said_before_it_happens(setup, logs):
    (told,) = json.loads(setup("--dry-run", "--json").out)["deletes"]

    first = time.strftime("%Y-%m-%d", time.localtime(READERS["claude"].locate(logs[1])[0].stat().st_mtime + 30 * DAY))
    assert ("claude", 30.0, 3, 1, 1, first) == tuple(
        told[key] for key in ("agent", "days", "logs", "due", "soon", "next")
    )
    assert (False, True) == (told["kept"], 0 < told["copy_bytes"] < told["bytes"])
    assert "cleanupPeriodDays" in told["setting"]
    said = " ".join(setup("--dry-run").out.split())
    assert "Claude Code deletes logs after 30 days without a change: 1 of 3 at its next start, 1 more within" in said
    assert "--keep-logs keeps compressed copies, about 1 MB" in said


def test_a_script_has_copies_kept_where_it_says_so(setup, logs):
    setup("--yes", "--no-index")
    assert not kept_logs.copies_wanted(READERS["claude"])
    done = setup("--yes", "--keep-logs", "--json")

    told = json.loads(done.out)
    assert_documented("setup", told)
    assert (0, "new") == (done.code, step(told)["state"])
    assert set(logs) == {copy.session_id for copy in kept_logs.copies()}
    again = json.loads(setup("--yes", "--keep-logs", "--json").out)
    assert ("there", True, False) == (step(again)["state"], again["deletes"][0]["kept"], again["changed"])


def test_copies_are_made_at_once_of_what_was_indexed_before(setup, logs):
    setup("--yes")
    assert [] == list(kept_logs.copies())

    done = setup("--yes", "--keep-logs")

    assert "copies, 3 logs" in done.out
    assert set(logs) == {copy.session_id for copy in kept_logs.copies()}


@pytest.mark.parametrize("answer", ["y", "w", "n"])
def test_a_person_at_a_terminal_sees_what_copies_are_about_and_is_asked_once(setup, logs, asked, answer):
    questions = asked(answer)

    done = setup()

    (question,) = questions
    assert "copies of logs" in question
    said = " ".join(done.out.split())
    assert "add copies of logs" in said
    assert "Claude Code deletes logs after 30 days" in said
    assert "Copies take about 1 MB; only you can read them" in said
    assert (answer == "y") == kept_logs.copies_wanted(READERS["claude"])
    assert (answer == "n") == (not list(Ledger()))


@pytest.mark.parametrize("words", [("--yes",), ("--keep-logs", "--yes"), ("--dry-run",), ("--json",)])
def test_nobody_is_asked_where_it_was_said_or_nobody_is_there(setup, logs, asked, words):
    questions = asked()

    setup(*words)

    assert [] == questions


@pytest.mark.parametrize("words", [("--no-keep-logs",), ("--remove",)])
def test_it_is_undone_and_the_copies_stay(setup, logs, words):
    setup("--yes", "--keep-logs")

    done = setup(*words)

    assert 0 == done.code
    assert "  off     copies of logs" in done.out
    assert not kept_logs.copies_wanted(READERS["claude"])
    assert not kept_logs.switch_of("claude").parent.exists()
    assert 3 == len(list(kept_logs.copies()))
    assert not [line for line in Ledger() if line.what == "keep"]


def test_the_environment_may_refuse(setup, logs, monkeypatch, asked):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "no")
    questions = asked("y")

    told = json.loads(setup("--yes", "--keep-logs", "--json").out)

    assert "left" == step(told)["state"]
    assert "SMART_FORK_KEEP_TRANSCRIPTS" in step(told)["why"]
    setup()
    assert not [one for one in questions if "copies" in one]


def test_where_no_log_goes_nothing_is_said(setup, world, shop):
    world.codex(shop, "mend it", "done")

    told = json.loads(setup("--dry-run", "--json").out)

    assert [] == told["deletes"]
    assert "keep" not in [one["step"] for one in told["steps"]]


def checked() -> list[doctor.Check]:
    return [one for one in doctor.run_checks(WordsModel()) if one.name.endswith("deletes logs")]


def test_doctor_says_it_before_it_happens(setup, logs):
    (check,) = checked()
    assert (False, True) == (check.ok, check.optional)
    assert "1 of 3 at its next start, 1 more within a week" in check.detail
    assert "no copies are kept, about 1 MB" in check.detail
    assert "smart-fork setup --keep-logs" in check.next_step
    assert "cleanupPeriodDays" in check.next_step
    setup("--yes", "--keep-logs")

    (check,) = checked()
    assert (True, "") == (check.ok, check.next_step)
    assert "copies are kept" in check.detail


@pytest.mark.parametrize(
    ("said", "days"),
    [
        ('{"cleanupPeriodDays": 90}', 90), ('{"cleanupPeriodDays": 0.5}', 0.5), ('{"cleanupPeriodDays": 0}', 0),
        ('{"cleanupPeriodDays": -1}', 30), ('{"cleanupPeriodDays": "9"}', 30), ('{"cleanupPeriodDays": true}', 30),
        ('{"cleanupPeriodDays": NaN}', 30), ('{"cleanupPeriodDays": 1e999}', 1_000_000), ("{", 30), ("[]", 30),
        (f'{{"cleanupPeriodDays": {"9" * 400}}}', 1_000_000), ("[" * 9999, 30), ("\x00", 30),
    ],
)  # fmt: skip
def test_settings_say_after_how_many_days(logs, said, days):
    settle(READERS["claude"].home() / "settings.json", said)

    (told,) = Deletion.expected(time.time())

    assert days == told.days
    assert {30: 1, 90: 0, 1_000_000: 0}.get(days, 3) == told.due


@pytest.mark.parametrize(
    ("said", "days"),
    [
        ({}, 30), ({"maxAge": "7d"}, 7), ({"maxAge": "24h"}, 1), ({"maxAge": "2w"}, 14), ({"maxAge": "1m"}, 30),
        ({"maxAge": 7}, 30), ({"maxAge": "soon"}, 30), ({"enabled": False}, None), (None, 30), ([], 30),
    ],
)  # fmt: skip
def test_another_agent_says_it_in_its_own_way_and_its_copies_are_not_kept_unasked(home, said, days):
    gemini_log(home, spoken("user", "u1", "mend it"))
    settle(READERS["gemini"].home() / "settings.json", json.dumps({"general": {"sessionRetention": said}}))

    expected = [] if days is None else [(days, False)]
    assert expected == [(one.days, one.kept) for one in Deletion.expected(time.time())]
