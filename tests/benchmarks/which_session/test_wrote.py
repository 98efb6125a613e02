"""Where in a session the lines were written that another one changed later."""

from __future__ import annotations

import pytest

from benchmarks.which_session.labels import questions
from benchmarks.which_session.ours import SmartFork
from benchmarks.which_session.play import Stage, at_home
from benchmarks.which_session.transcripts import transcripts
from benchmarks.which_session.wrote import place_of, wrote_of
from smart_fork.agents.readers import READERS
from tests.benchmarks.which_session.repository import edited, lines, session_id, succeeded, typed, with_five_before
from tests.indexer.written import HashEmbedder

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


def test_a_fork_point_has_the_edits_from_their_exchange_on(moment):
    embedder = HashEmbedder()
    ours = SmartFork(embedder)
    ours.bring_up_to_date()
    hit = next(hit for hit in ours.ask(moment).hits if hit.session_id == session_id(6))

    place = place_of(moment.question, hit, embedder)

    assert place.known == (hit.match.exchange >= 1)
    assert place.exact == (hit.match.exchange == 1)
    assert place.kept, "all of it takes less than the budget"
    assert 0 < place.whole < 30_000


def test_a_session_that_did_not_write_the_lines_has_no_place(moment):
    (log,) = READERS["claude"].locate(session_id(2))
    session = READERS["claude"].read(log, keep_raw=True).session

    assert wrote_of(session, moment.question, session_id(2)) is None
