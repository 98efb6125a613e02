"""Where in a session the lines were written that another one changed later."""

from __future__ import annotations

import json

import pytest

from benchmarks.which_session.labels import questions
from benchmarks.which_session.ours import SmartFork
from benchmarks.which_session.play import Stage, at_home
from benchmarks.which_session.transcripts import transcripts
from benchmarks.which_session.wrote import place_of, wrote_of
from smart_fork.agents.log_readers import READERS
from tests.benchmarks.which_session.repository import edited, lines, session_id, succeeded, typed, with_five_before
from tests.indexer.index_inputs import HashEmbedder

pytestmark = pytest.mark.thorough  # of the benchmarks, which no user runs


@pytest.fixture
def moment(tmp_path):
    """Session 6 wrote the lines in the second of three exchanges; session 7 changes them."""
    repository = with_five_before(tmp_path / "harbor")
    records = [
        typed(90, "Read how ships are unloaded"), edited(91, "dock.py", "pass"), succeeded(91.1, 91),
        typed(92, "Write the dock that unloads ships"), edited(93, "dock.py", lines("dock")), succeeded(93.1, 93),
        typed(94, "commit"), edited(95, "notes.py", "done"), succeeded(95.1, 95),
    ]  # fmt: skip
    repository.keep(6, 6, records, ["dock.py", "notes.py"], 98)
    repository.commit(99, {"dock.py": lines("dock"), "notes.py": "done\n"}, 6)
    repository.worked(7, 120, "Mend the dock that unloads heavy ships", {"dock.py": lines("newer")})
    clone = repository.clone()
    known = transcripts(clone)
    stage = Stage(clone, known, tmp_path / "stage")
    with at_home(stage.home, stage.state):
        *_, last = stage.moments(questions(clone, known))
        yield last


def test_the_exchange_that_wrote_the_lines_is_found(moment):
    (log,) = READERS["claude"].locate(session_id(6))
    session = READERS["claude"].read(log, keep_raw=True).session

    wrote = wrote_of(session, moment.question, session_id(6))

    assert 1 == wrote.exchange
    assert [("dock.py",)] == [
        tuple(path.rpartition("/")[2] for call in session.turns[turn].tool_calls for path in call.edits)
        for turn in wrote.turns
    ]


def test_the_whole_conversation_and_a_budget_that_is_large_enough_have_the_edits(moment):
    SmartFork(embedder := HashEmbedder()).bring_up_to_date()

    place = place_of(moment.question, session_id(6), embedder)

    assert place.plain.knows
    assert place.budget.knows, "all of it takes less than the budget"
    assert place.match.knows == (place.match.tokens is not None), "no exchange before theirs answers"
    assert 0 < place.whole < 30_000


def test_what_a_compaction_forgot_is_not_in_a_plain_fork(moment):
    (log,) = READERS["claude"].locate(session_id(6))
    last = json.loads(log.read_text().splitlines()[-1])
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "c1",
        "parentUuid": None,
        "logicalParentUuid": last["uuid"],
    }
    summary = typed(97, "Ships are unloaded.", isCompactSummary=True) | {"uuid": "c2", "parentUuid": "c1"}
    known = {"sessionId": session_id(6), "cwd": last["cwd"], "timestamp": last["timestamp"]}
    with log.open("a") as file:
        file.writelines(json.dumps(known | one) + "\n" for one in (boundary, summary))
    SmartFork(embedder := HashEmbedder()).bring_up_to_date()

    place = place_of(moment.question, session_id(6), embedder)

    assert not place.plain.knows
    assert place.budget.knows
    assert place.plain.tokens < place.whole


def test_a_session_that_did_not_write_the_lines_has_no_place(moment):
    (log,) = READERS["claude"].locate(session_id(2))
    session = READERS["claude"].read(log, keep_raw=True).session

    assert wrote_of(session, moment.question, session_id(2)) is None
