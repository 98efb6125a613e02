"""Tests of copies of Copilot CLI's sessions: their content, their directory, and the files left by a failed copy."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from indexer.transcripts.lines import bounded
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Excerpt, NewSession
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import ForkRefused
from smart_fork.forking.budget_parts import costs
from smart_fork.forking.family import parents
from smart_fork.system.processes import Machine, Processes
from tests.indexer.transcripts.records import SESSION, id_of, read_copilot, texts
from tests.smart_fork.agents.copilot.test_log import ADA, fixture

NEW = id_of(9)


def copied(
    session: Session, end: int, cwd: Path | None = None, title: str = "", excerpt: Excerpt | None = None
) -> Path:
    becomes = NewSession(NEW, cwd, datetime(2026, 7, 2, 10, tzinfo=UTC), title)
    copier = AGENTS.copier_of("copilot")
    target = copier.place(session.source_path, becomes)
    copy = copier.copy(session, excerpt, becomes) if excerpt else copier.copy(session, end, becomes)
    return copier.write(copy, target, becomes, Machine(Processes(), {}), lambda: None).path


@pytest.mark.parametrize("name", ["tools", "denied", "subagent", "compacted", "fork"])
def test_a_copy_reads_back_as_what_was_copied(home, name):
    session = read_copilot(fixture(home, name))

    copy = read_copilot(copied(session, len(session.turns) - 1))

    assert (texts(copy), copy.compactions, copy.cwd) == (texts(session), session.compactions, ADA)
    assert (copy.session_id, copy.parent_id, copy.copied) == (NEW, session.session_id, False)


@pytest.mark.parametrize("name", ["tools", "denied", "subagent", "compacted", "fork"])
def test_what_a_budget_counts_is_measured_while_the_log_is_read(home, name):
    log = fixture(home, name)
    with bounded(measures=True):
        measured = READERS["copilot"].read(log).session

    again = costs(replace(measured, sizes=()))

    assert len(measured.turns) == len(measured.sizes)
    assert 0 < sum(again.turns)
    assert again == costs(measured)


def test_a_copy_ends_with_the_exchange_and_works_where_it_is_told_with_its_files(home, tmp_path):
    session = read_copilot(fixture(home, "tools"))
    for name, text in (("files/plan.md", "one"), ("checkpoints/index.md", "two"), ("research/x", "three")):
        beside = session.source_path.parent / name
        beside.parent.mkdir()
        beside.write_text(text)

    log = copied(session, 3, tmp_path, 'Uploader: "two"')

    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["id"] for one in records[1:]] == [one["parentId"] for one in records[2:]] + [records[-1]["id"]]
    assert (len(texts(read_copilot(log))), read_copilot(log).cwd) == (2, str(tmp_path))
    beside = yaml.safe_load(log.with_name("workspace.yaml").read_text())
    assert (beside["id"], beside["cwd"], beside["name"]) == (NEW, str(tmp_path), 'Uploader: "two"')
    assert read_copilot(log).title == 'Uploader: "two"'
    assert [one.read_text() for one in (log.with_name("files") / "plan.md", log.with_name("checkpoints") / "index.md")] == [
        "one", "two",
    ]  # fmt: skip


def of_kinds(log: Path) -> list[dict]:
    """Return the events of a log, and check that each has the event before it as its parent."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [None, *(one["id"] for one in records[:-1])] == [one["parentId"] for one in records]
    return records


def test_of_what_is_left_out_a_line_is_told_and_calls_stay_with_their_results(home, tmp_path):
    session = read_copilot(fixture(home, "tools"))
    last = len(session.turns) - 1
    kept = frozenset(range(4, last + 1))

    log = copied(session, last, tmp_path, excerpt=Excerpt(kept, last, {4: "left: one"}))

    assert [one["type"] for one in of_kinds(log)] == [
        "session.start", "user.message", "user.message", "assistant.message", "tool.execution_start",
        "tool.execution_complete", "assistant.message", "session.info",
    ]  # fmt: skip
    assert "left: one" in of_kinds(log)[1]["data"]["content"]
    back = read_copilot(log)
    assert (texts(back), back.cwd, back.parent_id) == (texts(session)[2:], str(tmp_path), session.session_id)
    assert session.root_id == back.root_id
    assert "cat retry.py" not in "".join(str(one["data"]) for one in of_kinds(log)[:-1])
    (call,) = [call for turn in back.turns for call in turn.tool_calls]
    assert {call.id} == {result.tool_use_id for turn in back.turns for result in turn.tool_results}


def test_what_a_compaction_has_left_is_told_before_what_is_kept(home):
    session = read_copilot(fixture(home, "compacted"))
    last = len(session.turns) - 1

    log = copied(session, last, excerpt=Excerpt(frozenset({last - 1, last}), last))

    _, left, *_ = of_kinds(log)
    assert "PONG 3: ing: respond only with the summary text." in left["data"]["content"]
    assert texts(read_copilot(log))[0] == "second step"
    assert read_copilot(log).compactions == 0


def test_a_long_result_is_shortened_with_what_its_screen_shows(home):
    session = read_copilot(fixture(home, "tools"))
    log = session.source_path
    log.write_text(log.read_text().replace("retry = 1\\n<shellId", "retry = 1\\n" * 200 + "<shellId"))
    session = read_copilot(log)
    last = len(session.turns) - 1

    copy = copied(session, last, excerpt=Excerpt(frozenset(range(last + 1)), last, {}, (), frozenset({2, 6})))

    short, view = (one["data"]["result"] for one in of_kinds(copy) if one["type"] == "tool.execution_complete")
    assert "characters dropped from this copy" in short["content"]
    assert {"content": "retry = 1\n"} == view
    sizes = [(one.characters, one.short) for one in AGENTS.copier_of("copilot").live(session) if one.number == 2]
    assert all(size > 1000 > short for size, short in sizes)
    assert sizes


def test_a_session_that_is_there_stays_as_it_is(home):
    session = read_copilot(fixture(home, "tools"))
    there = home / f".copilot/session-state/{NEW}/files/plan.md"
    there.parent.mkdir(parents=True)
    there.write_text("mine")

    with pytest.raises(ForkRefused, match="already exists"):
        copied(session, 1)

    assert there.read_text() == "mine"


def test_what_a_killed_writer_has_left_goes_with_its_folder(home):
    session = read_copilot(fixture(home, "tools"))
    all_sessions = session.source_path.parents[1]
    for name, files in (("killed", ("workspace.yaml",)), ("writing", ("workspace.yaml",)), ("used", ("events.jsonl",))):
        staging = all_sessions / name / ".events.jsonl.0123456789abcdef.tmp"
        staging.parent.mkdir()
        for file in (staging, *(staging.with_name(one) for one in files)):
            file.write_text("{}\n")
        if name != "writing":
            os.utime(staging, (0, 0))

    copied(session, 3)

    assert {"writing", "used", NEW, session.session_id} == {path.name for path in all_sessions.iterdir()}
    assert ["events.jsonl"] == [path.name for path in (all_sessions / "used").iterdir()]


def test_of_a_log_that_was_rewritten_meanwhile_nothing_is_left(home):
    log = fixture(home, "tools")
    session = read_copilot(log)
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:5]))

    with pytest.raises(ForkRefused, match="changed"):
        copied(session, len(session.turns) - 1)

    assert [one.name for one in log.parents[1].iterdir()] == [SESSION]


def test_forks_of_the_program_and_ours_are_of_one_family(home):
    fixture(home, "tools")
    session = read_copilot(fixture(home, "compacted"))
    theirs = read_copilot(fixture(home, "fork")).session_id
    copied(session, 1)

    family = AGENTS.ancestry_of("copilot").family(session.session_id, ADA, {})

    assert parents(family, {}) == {theirs: session.session_id, NEW: session.session_id}
