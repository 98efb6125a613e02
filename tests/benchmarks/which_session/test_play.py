"""History is played in order: nothing is there before its time."""

from __future__ import annotations

import json
import os

import pytest

from benchmarks.which_session import __main__ as program
from benchmarks.which_session.asked import PHRASED, Library, by_files_named, newest, tools
from benchmarks.which_session.clone import Clone
from benchmarks.which_session.labels import questions
from benchmarks.which_session.ours import Kept, SmartFork
from benchmarks.which_session.play import Stage, again, at_home, keep
from benchmarks.which_session.transcripts import transcripts
from tests.benchmarks.which_session.repository import (
    ROOT,
    at,
    edited,
    lines,
    session_id,
    succeeded,
    typed,
    with_five_before,
)
from tests.indexer.index_inputs import HashEmbedder

pytestmark = pytest.mark.thorough  # of the benchmarks, which no user runs

ASKS = "Mend how a2.py lifts heavy cargo"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Session 6 asks at 100 minutes; session 5 goes on at 110, and session 7 begins at 120."""
    repository = with_five_before(tmp_path_factory.mktemp("built") / "harbor")
    later = [
        typed(75, "Write module a5 about cranes, ships and cargo, part 5"),
        edited(76, "a5.py", "x"),
        succeeded(76.1, 76),
    ]
    repository.keep(5, 5, [*later, typed(110, "and what of tugboats")], ["a5.py"], 111)
    repository.worked(6, 100, ASKS, {"a2.py": lines("sixth")})
    repository.worked(7, 120, "Deepen basins where tankers usually turn", {"a2.py": lines("seventh")}, branch="basins")
    return repository


@pytest.fixture
def staged(built, tmp_path):
    clone = built.clone()
    known = transcripts(clone)
    return Stage(clone, known, tmp_path / "stage"), questions(clone, known)


def log(moment, number: int):
    return next(iter(moment.home.glob(f".claude/projects/*/{session_id(number)}.jsonl")), None)


def test_the_home_holds_what_was_there_when_the_question_was_asked(staged):
    stage, asked = staged
    first, second = stage.moments(asked)

    assert {session_id(number) for number in range(1, 6)} == set(first.present)
    assert session_id(6) in second.present
    assert log(second, 7) is None, "the session that asks"


def test_a_log_is_cut_at_the_time_of_the_question_and_grows_later(staged):
    stage, asked = staged
    moments = stage.moments(asked)
    text = log(next(moments), 5).read_text()
    grown = log(next(moments), 5).read_text()

    assert "tugboats" not in text
    assert grown.startswith(text)
    assert "tugboats" in grown


def test_a_log_was_changed_when_its_last_record_was_written(staged):
    stage, asked = staged
    moment = next(stage.moments(asked))

    assert at(76.1) == pytest.approx(log(moment, 5).stat().st_mtime)
    assert at(76.1) == pytest.approx(moment.present[session_id(5)])


def test_the_repository_is_at_the_last_commit_before_on_the_branch_of_the_session(staged, built):
    stage, asked = staged
    first, second = stage.moments(asked)
    head = second.clone / ".git/HEAD"

    assert "ref: refs/heads/basins\n" == head.read_text()
    assert lines("sixth") == (second.clone / "a2.py").read_text()
    assert built.git("rev-parse", "main~2") == first.question.head, "the commit of session 5"


def test_the_working_tree_is_clean_even_where_a_file_is_absent(staged, built):
    stage, asked = staged
    moments = stage.moments(asked)
    clone = next(moments).clone
    (clone / "left.txt").write_text("of an earlier moment")
    (clone / "a1.py").write_text("changed")
    blob = built.git("rev-parse", "main~1:a2.py")
    away = built.path / ".git/objects" / blob[:2] / blob[2:]
    content = away.read_bytes()
    away.unlink()
    next(moments)
    away.write_bytes(content)

    assert "" == Clone(clone).git("status", "--porcelain").decode()
    assert "basins" == Clone(clone).branch
    assert not (clone / "a2.py").exists(), "its blob is absent"


def test_further_phrasings_are_asked_as_a_tool_of_their_own(staged):
    stage, asked = staged
    with at_home(stage.home, stage.state):
        ours = SmartFork(HashEmbedder())
        moment = next(stage.moments(asked))
        ours.bring_up_to_date()
        by_name = {one.name: one for one in tools(ours, {moment.question.id: ("dredge a harbor basin",)})}
        by_name[PHRASED].ask(moment)

    assert "dredge a harbor basin" in ours.embedder.embedded
    assert PHRASED not in {one.name for one in tools(ours, {})}


def test_logs_are_as_if_they_had_been_written_in_the_clone(staged):
    stage, asked = staged
    moment = next(stage.moments(asked))
    text = log(moment, 2).read_text()

    assert ROOT not in text
    assert f'"cwd": "{moment.clone}"' in text
    assert f"{moment.clone}/a2.py" in text


def test_the_source_is_not_changed(staged, built):
    stage, asked = staged
    before = built.git("for-each-ref"), built.git("status", "--porcelain"), (built.path / ".git/HEAD").read_text()
    list(stage.moments(asked))

    assert before == (
        built.git("for-each-ref"),
        built.git("status", "--porcelain"),
        (built.path / ".git/HEAD").read_text(),
    )


def test_tools_answer_with_sessions_that_are_present(staged):
    stage, asked = staged
    with at_home(stage.home, stage.state):
        library = Library()
        (moment, _) = stage.moments(asked)
        sessions = library.sessions(moment)

    assert session_id(5) == newest(moment)[0]
    assert frozenset({"a2.py"}) == sessions[session_id(2)].edited
    assert session_id(2) == by_files_named(moment, sessions)[0]


def test_a_kept_moment_is_asked_again_as_it_was(staged):
    stage, asked = staged
    answers = []
    with at_home(stage.home, stage.state):
        ours = SmartFork(HashEmbedder())
        for moment in stage.moments(asked):
            ours.bring_up_to_date()
            answers.append(ours.ask(moment).sessions)
            keep(stage, moment.question)
        for question, answer in zip(asked, answers, strict=True):
            with again(stage, question) as moment:
                assert answer == ours.ask(moment).sessions
                assert session_id(6) in moment.present or question.session == session_id(6)


def test_what_was_embedded_once_is_not_embedded_again(tmp_path):
    embedder = HashEmbedder()
    first = Kept(embedder, tmp_path / "vectors.db").embed(["a ship", "a crane"])
    later = Kept(embedder, tmp_path / "vectors.db").embed(["a crane", "a ship"])

    assert ["a ship", "a crane"] == embedder.embedded
    assert (first[::-1] == later).all()


def test_other_homes_are_not_inherited(tmp_path, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", "/elsewhere")
    with at_home(tmp_path, tmp_path / "state"):
        assert "CODEX_HOME" not in os.environ
        assert str(tmp_path) == os.environ["HOME"]

    assert "/elsewhere" == os.environ["CODEX_HOME"]


def test_the_figures_name_sessions_commits_and_shares_and_no_text(built, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("indexer.default_embedder.configured_embedder", HashEmbedder)
    monkeypatch.setattr(program, "FOLDER", tmp_path / "stage")
    written = tmp_path / "figures.json"
    monkeypatch.setattr("sys.argv", ["which_session", str(built.clone().path), "--json", str(written)])
    program.main()
    told = json.loads(written.read_text())

    assert [1, 1] == next(iter(told["tools"]["files named, then newest"]["ranks"].values()))
    assert {"all", "plan", "typed", "ranks"} == set(told["tools"]["BM25"])
    assert {session_id(2): 1.0} == told["questions"][0]["answers"]
    assert built.git("rev-parse", "HEAD") == told["repositories"][0]["head"]
    assert [] == [word for word in ("cargo", "cranes", "tankers", str(tmp_path)) if word in written.read_text()]
    assert not (tmp_path / "stage").exists(), "nothing of a transcript is left"
    assert "| smart-fork |" in capsys.readouterr().out


def test_a_folder_without_checkpoints_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["which_session", str(tmp_path)])

    with pytest.raises(SystemExit, match="no clone with a branch entire/checkpoints/v1"):
        program.main()
