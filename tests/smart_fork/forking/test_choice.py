"""Tests of a budget's choice: which exchanges of a session it keeps, and how much of each (C-022)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.log_readers import READERS
from smart_fork.finding.ranking import ExchangeEvidence, PointParts
from smart_fork.forking.budget_parts import Dependencies, costs, units
from smart_fork.forking.request import Budget
from tests.smart_fork.forking.test_within import LONG, PROMPTS, claude_records, distil, kept, speaking, written
from tests.smart_fork.forks import SESSION, said, write_log


def with_calls(records: list[dict], before: int | str, calls: Iterable[tuple[str, dict, str]]) -> list[dict]:
    """Return the records with these calls (name, input, result) added at that place, or before that prompt."""
    place = before if isinstance(before, int) else _place_of(records, before) - 1
    for number, (name, given, result) in enumerate(calls):
        use = {"type": "tool_use", "id": f"e{number}", "name": name, "input": given}
        done = {"type": "tool_result", "tool_use_id": f"e{number}", "content": result}
        records[place:place] = [said(f"e{number}", None, "assistant", [use]), said(f"d{number}", None, "user", [done])]
        place += 2
    for earlier, record in pairwise(records):
        record["parentUuid"] = earlier["uuid"]
    return records


def _place_of(records: list[dict], prompt: str) -> int:
    return next(place for place, one in enumerate(records) if one["message"]["content"] == prompt)


def with_files(records: list[dict], repo: Path, before: str, count: int) -> list[dict]:
    """Return the records with so many written files added to the exchange before that prompt."""
    files = ({"file_path": f"{repo}/new{number}.py", "content": "x" * 3_000} for number in range(count))
    return with_calls(records, before, (("Write", given, "ok") for given in files))


def edits_of(session) -> list[str]:
    return [path for turn in session.turns for call in turn.tool_calls for path in call.edits]


def test_of_two_that_are_as_likely_the_one_that_takes_less_is_kept_with_its_edits(home, repo):
    records = with_files(claude_records(repo), repo, "write the changelog", 4)
    session = READERS["claude"].read(write_log(folder_of(repo) / f"{SESSION}.jsonl", records)).session
    alike = PointParts(0.9, 1.0, 1.0, 1.0, 0.0)

    back, _ = written(session, distil(session, Budget(3_600), ExchangeEvidence({1: alike, 2: alike})).excerpt, repo)

    assert [f"{repo}/upload.py"] == edits_of(back)[:1]


def test_what_a_session_begins_with_keeps_its_edits(home, repo):
    """Later work builds on them, though the first exchange has no evidence."""
    records = with_files(claude_records(repo), repo, "add retry to upload.py", 2)
    session = READERS["claude"].read(write_log(folder_of(repo) / f"{SESSION}.jsonl", records)).session

    back, _ = written(session, distil(session, Budget(5_000), speaking(3)).excerpt, repo)

    assert [f"{repo}/new0.py", f"{repo}/new1.py"] == edits_of(back)


@pytest.mark.parametrize(("files", "share"), [(0, "nothing"), (1, "words")])
def test_what_changes_files_right_after_what_answers_best_is_kept_with_it(home, repo, files, share):
    """The exchange after the best answer often corrects it, though it has no evidence of its own."""
    records = with_files(claude_records(repo), repo, PROMPTS[3], files)
    session = READERS["claude"].read(write_log(folder_of(repo) / f"{SESSION}.jsonl", records)).session

    found = kept(distil(session, Budget(4_500), speaking(1)).selection)

    assert share == found[3]
    assert "nothing" == found[5]


def test_where_not_all_edits_of_an_exchange_fit_the_last_that_do_are_kept(home, repo):
    records = with_files(claude_records(repo), repo, "upgrade the linter", 12)
    session = READERS["claude"].read(write_log(folder_of(repo) / f"{SESSION}.jsonl", records)).session

    found = distil(session, Budget(4_500), speaking(1))

    back, _ = written(session, found.excerpt, repo)
    edits = [call.action for turn in back.turns for call in turn.tool_calls if call.edits]
    assert "part" == kept(found.selection)[2]
    assert 3 <= len(edits) < 12
    assert [f"edit {repo}/new{number}.py" for number in range(12 - len(edits), 12)] == edits
    assert 3_500 < found.selection.tokens <= 4_500


@pytest.mark.parametrize(("budget", "steps", "looked"), [(Budget.MATCH, 64, False), (1_600, 16, True)])
def test_of_what_answers_and_is_too_much_what_was_run_is_kept_before_what_was_looked_at(
    home, repo, budget, steps, looked
):
    """The output of a run, such as the log of a failed build, is in no file that could be read again."""
    calls = []
    for number in range(steps):
        name, given = ("Bash", {"command": f"gh run view {number} --log"}) if number % 4 == 0 else (
            "Read", {"file_path": f"{repo}/far{number}.py"}
        )  # fmt: skip
        shown = f"expired\n{LONG * 2}" if name == "Bash" or looked else "too short to be cut " * 23
        calls.append((name, given, shown))
    records = with_calls(claude_records(repo), "upgrade the linter", calls)
    session = READERS["claude"].read(write_log(folder_of(repo) / f"{SESSION}.jsonl", records)).session

    found = distil(session, Budget(budget), speaking(1)).excerpt

    calls = [call.action for number in sorted(found.kept) for call in session.turns[number].tool_calls]
    assert [f"run gh run view {number} --log" for number in range(0, steps, 4)] == [
        one for one in calls if "run " in one
    ]
    assert 1 <= sum("far" in one for one in calls) < 12 if looked else not any("far" in one for one in calls)
    back, _ = written(session, found, repo)
    log = back.source_path.read_text()
    assert log.count("expired") >= 4
    assert "dropped from this copy" in log


def test_what_a_person_decided_in_a_form_is_kept_like_an_edit(home, repo):
    form = {"questions": [{"question": "Which?"}]}
    forms = ((name, form, "the second") for name in ("AskUserQuestion", "TodoWrite"))
    records = with_calls(claude_records(repo), "upgrade the linter", forms)
    session = READERS["claude"].read(write_log(folder_of(repo) / f"{SESSION}.jsonl", records)).session

    needs = Dependencies(units(session, costs(session), len(session.turns) - 1))

    calls = {call.name for turn in needs.done(1) for call in session.turns[turn].tool_calls}
    assert {"Read", "Edit", "AskUserQuestion"} == calls


def test_an_edit_keeps_the_reading_of_its_own_file_not_what_only_has_its_name(home, repo):
    """A file of that name in another directory, or a command that stages it, is not kept."""
    records = claude_records(repo)
    records = with_calls(records, _place_of(records, "add retry to upload.py"), [
        ("Read", {"file_path": f"{repo}/old/upload.py"}, "ok"),
        ("Bash", {"command": "git add upload.py; wc -l my-upload.py"}, "ok"),
    ])  # fmt: skip
    session = READERS["claude"].read(write_log(folder_of(repo) / f"{SESSION}.jsonl", records)).session

    needs = Dependencies(units(session, costs(session), len(session.turns) - 1))

    actions = [call.action for turn in sorted(needs.done(1)) for call in session.turns[turn].tool_calls]
    assert [f"read {repo}/upload.py", f"edit {repo}/upload.py"] == actions
