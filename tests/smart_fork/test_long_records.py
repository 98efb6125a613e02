"""Tests of records that are too long to be decoded. They have a number and a size, and can be copied and cut.

The limit is 16 MiB, and smaller in these tests.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from indexer.transcripts import lines
from indexer.transcripts.base import Checkpoint
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HomePlace, TargetSession, Utterance
from smart_fork.excise import Request, cut, rollback
from smart_fork.finding import session_lookup
from smart_fork.finding.conversation import ReadRange
from smart_fork.finding.ranking import ExchangeEvidence
from smart_fork.forking.budget_choice import Chooser, within
from smart_fork.forking.budget_parts import costs
from smart_fork.forking.copies import write_branch
from smart_fork.forking.request import Budget
from smart_fork.sharing.outgoing import prepare
from tests.support.cases import thorough_except_first

LONG = "zebra " * 40_000
INSTEAD = f"[a text of {len(LONG):,} bytes, too long to be read]"
SAID = ("add retry", "it retries", LONG, "so many zebras", "and the docs", "done")
SHOWN = [INSTEAD if one == LONG else one for one in SAID]
IN_FILES = [agent.name for agent in AGENTS if agent.converter and agent.name != "opencode"]


@pytest.fixture(params=IN_FILES)
def log(request, home, repo, monkeypatch) -> Path:
    """Write a session with a long second prompt, in the form of its agent."""
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 100_000)
    agent = request.param
    session_id = AGENTS.starter_of(agent).new_id()
    said = [Utterance(not n % 2, text, f"2026-01-01T10:0{n}:00.000Z") for n, text in enumerate(SAID)]
    path: Path = AGENTS.copier_of(agent).place(Path("log"), NewSession(session_id, repo, datetime.now(UTC)))
    path.parent.mkdir(parents=True, exist_ok=True)
    records = AGENTS.handover_writer_of(agent).log_of(said, TargetSession(session_id, HomePlace(str(repo), str(home))))
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def reader(request, log):
    return READERS[request.node.callspec.params["log"]]


def messages(session) -> list[str]:
    return [turn.text for _, turn in session.messages]


def test_it_is_a_message_that_says_how_long_it_is(log, reader):
    assert SHOWN == messages(reader.read(log).session)
    located = session_lookup.locate(f"{reader.name}:{reader.id_of(log)}")
    shown, _ = ReadRange().messages(session_lookup.read(located))
    assert SHOWN == [one.text for one in shown]


def test_reading_on_past_it_is_reading_again(log, reader):
    whole, records = log.read_bytes(), log.read_bytes().splitlines(keepends=True)
    at: Checkpoint | None = None
    for end in range(1, len(records) + 1):
        log.write_bytes(b"".join(records[:end]))
        at = reader.read(log, at).checkpoint
    assert whole == log.read_bytes()
    assert messages(reader.read(log).session) == messages(reader.read(log, at).session)


def test_a_branch_has_it_as_it_is(log, reader, repo):
    session = reader.read(log).session

    made = write_branch(
        session, at=None, becomes=NewSession(AGENTS.starter_of(reader.name).new_id(), repo, datetime.now(UTC))
    )

    assert SHOWN == messages(reader.read(made.path).session)
    assert LONG in made.path.read_text()


def test_a_fork_within_a_budget_counts_it_as_long_as_it_is_and_has_only_how_long_that_is(log, reader, repo):
    session = reader.read(log).session

    found = within(Chooser(session, costs(session), len(session.turns) - 1, ExchangeEvidence()), Budget(5_000))

    assert found.selection.tokens < 5_000
    assert found.selection.whole_tokens > 50_000
    made = write_branch(
        session,
        at=None,
        becomes=NewSession(AGENTS.starter_of(reader.name).new_id(), repo, datetime.now(UTC)),
        excerpt=found.excerpt,
    )
    assert "zebra zebra" not in made.path.read_text()


def test_what_leaves_the_machine_says_that_it_is_too_long(log, reader, home, repo):
    made = prepare(log, reader.name, repo)

    assert made.left_out["texts that are too long"]
    assert made.size < 100_000
    assert INSTEAD.encode() in b"".join(made.records)


@pytest.mark.parametrize(
    "log", thorough_except_first(name for name in IN_FILES if AGENTS.find_cutter(name)), indirect=True
)
def test_a_cut_of_its_number_takes_it_and_no_other(log, reader):
    before = log.read_bytes()
    number = next(number for number, turn in reader.read(log).session.messages if turn.text == INSTEAD)

    done = cut(Request(str(log), f"{number}-{number + 1}"))

    assert [*SHOWN[:2], *SHOWN[4:]] == messages(reader.read(log).session)
    assert "zebra" not in log.read_text()
    rollback(done["snapshot"])
    assert before == log.read_bytes()
