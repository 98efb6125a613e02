"""What counts as a question, and as its answer."""

from __future__ import annotations

import pytest

from benchmarks.which_session.labels import questions
from benchmarks.which_session.transcripts import transcripts
from tests.benchmarks.which_session.repository import Repository, edited, lines, session_id, typed, with_five_before

pytestmark = pytest.mark.thorough  # of the benchmarks, which no user runs

ASKS = "Mend how cranes lift heavy cargo"


@pytest.fixture(scope="module")
def five(tmp_path_factory) -> Repository:
    return with_five_before(tmp_path_factory.mktemp("five") / "harbor")


@pytest.fixture
def repository(five, tmp_path) -> Repository:
    return five.copied(tmp_path / "harbor")


def asked(repository: Repository, number: int = 6):
    clone = repository.clone()
    return next((one for one in questions(clone, transcripts(clone)) if one.session == session_id(number)), None)


def rewritten(word: str, new: int, of: int = 10) -> str:
    return lines("new", new) + "".join(lines(word, of).splitlines(keepends=True)[new:])


def test_the_session_that_wrote_the_lines_is_the_answer(repository):
    repository.worked(6, 100, ASKS, {"a2.py": rewritten("line2", 4)})

    question = asked(repository)

    assert (question.text, question.kind) == (ASKS, "typed")
    assert {session_id(2): 1.0} == question.answers
    assert {session_id(2)} == question.right == question.wide
    assert ("a2.py", "line2 number 0 of the harbor") in question.written[session_id(2)]


def test_each_answer_has_its_share_of_the_lines(repository):
    repository.worked(6, 100, ASKS, {"a2.py": rewritten("line2", 6), "a3.py": rewritten("line3", 3)})
    repository.worked(
        7,
        120,
        "Deepen basins where tankers usually turn",
        {"a4.py": rewritten("line4", 9), "a5.py": rewritten("line5", 1)},
    )

    assert {session_id(2): 0.6667, session_id(3): 0.3333} == asked(repository).answers
    assert {session_id(4)} == asked(repository, 7).right, "a tenth is an answer, and not a right one"


def test_lines_that_nobody_wrote_are_a_question_that_nothing_answers(repository):
    repository.commit(98, {"by_hand.py": lines("hand")})
    repository.worked(6, 100, ASKS, {"by_hand.py": rewritten("hand", 5), "new.py": lines("fresh")})

    assert asked(repository).is_none


def test_who_changed_the_lines_before_is_right_by_the_wider_label(repository):
    repository.worked(6, 100, "Rename what module two counts today", {"a2.py": rewritten("line2", 10)})
    repository.worked(7, 120, ASKS, {"a2.py": lines("third")})

    question = asked(repository, 7)

    assert {session_id(6)} == question.right
    assert {session_id(2), session_id(6)} == question.wide


def test_a_deleted_line_that_looks_like_a_header_is_a_line(repository):
    text = "-- a comment of ours\n" * 5 + lines("x")
    repository.worked(6, 100, "Write notes about harbor tables somewhere", {"a.sql": text})
    repository.worked(7, 120, ASKS, {"a.sql": lines("x", 8)})

    assert 5 + 2 == len(asked(repository, 7).written[session_id(6)])


@pytest.mark.parametrize("prompt", ["fix it", "Do it again for the cranes please", "Mend our heavy cranes"])
def test_a_prompt_of_fewer_than_four_telling_words_is_no_question(repository, prompt):
    repository.worked(6, 100, prompt, {"a2.py": rewritten("line2", 4)})

    assert asked(repository) is None


def test_a_session_with_fewer_than_five_before_it_asks_nothing(tmp_path):
    repository = Repository(tmp_path / "harbor")
    for number in range(1, 5):
        repository.worked(
            number, 15 * number, f"Write module a{number} about cranes and cargo", {f"a{number}.py": lines("line")}
        )
    repository.worked(5, 100, ASKS, {"a2.py": rewritten("line", 4)})

    assert asked(repository, 5) is None


def test_what_was_asked_before_in_the_same_words_is_not_asked_again(repository):
    repository.worked(6, 100, ASKS, {"a2.py": rewritten("line2", 4)})
    repository.worked(7, 120, f"  {ASKS.upper()}\n", {"a3.py": rewritten("line3", 4)})

    assert asked(repository, 6) is not None
    assert asked(repository, 7) is None


def test_what_follows_the_output_of_a_command_is_no_question(repository):
    output = "<bash-stdout>three ships failed</bash-stdout><bash-stderr></bash-stderr>"
    repository.keep(
        6, 6, [typed(100, "<bash-input>make</bash-input>"), typed(100.1, output), typed(101, ASKS)], ["a2.py"], 104
    )
    repository.commit(105, {"a2.py": rewritten("line2", 4)}, 6)

    assert asked(repository) is None


@pytest.mark.parametrize(
    "before",
    [
        typed(99, "<command-name>/clear</command-name>"),
        typed(99, "<local-command-stdout></local-command-stdout>"),
        typed(99, "Injected by the program itself: cranes, ships, cargo", isMeta=True),
        typed(99, "What a helper was asked: cranes, ships, cargo", isSidechain=True),
        edited(99, "a2.py", "x"),
    ],
)
def test_the_question_is_what_a_person_typed_first(repository, before):
    repository.keep(6, 6, [before, typed(100, ASKS), typed(101, "commit")], ["a2.py"], 104)
    repository.commit(105, {"a2.py": rewritten("line2", 4)}, 6)

    assert ASKS == asked(repository).text


def test_documents_that_many_commits_touch_do_not_count(repository):
    repository.worked(6, 90, "Write notes about every module today", {"CHANGELOG.md": lines("entry")})
    repository.worked(7, 100, ASKS, {"CHANGELOG.md": rewritten("entry", 9), "a2.py": rewritten("line2", 4)})

    assert {session_id(2): 1.0} == asked(repository, 7).answers


def test_too_few_lines_are_no_label(repository):
    repository.worked(6, 100, ASKS, {"a2.py": rewritten("line2", 2)})

    assert asked(repository) is None


def test_too_small_a_part_of_the_lines_is_no_label(repository):
    repository.commit(98, {"by_hand.py": lines("hand", 40)})
    repository.worked(6, 100, ASKS, {"a2.py": rewritten("line2", 3), "by_hand.py": lines("other", 40)})

    assert asked(repository) is None


def test_no_label_without_a_share_of_three_tenths(repository):
    changed = {f"a{number}.py": rewritten(f"line{number}", 3) for number in range(1, 5)}
    repository.worked(6, 100, ASKS, changed)

    assert asked(repository) is None, "each wrote a quarter"


def test_the_session_that_a_plan_names_as_its_source_is_no_answer(repository):
    prompt = f"{ASKS}. Details are in /home/somebody/.claude/projects/harbor/{session_id(2)}.jsonl"
    repository.worked(6, 100, prompt, {"a2.py": rewritten("line2", 4), "a3.py": rewritten("line3", 4)})

    assert {session_id(3): 1.0} == asked(repository).answers


def test_a_session_of_the_same_family_is_no_answer(repository):
    shared = typed(15 * 2, "x") | {"uuid": "00020002-2222-4222-8222-000000000000"}
    repository.keep(
        6, 6, [typed(100, ASKS), shared | {"timestamp": typed(101, "")["timestamp"]}], ["a2.py", "a3.py"], 104
    )
    repository.commit(105, {"a2.py": rewritten("line2", 4), "a3.py": rewritten("line3", 4)}, 6)

    assert {session_id(3): 1.0} == asked(repository).answers


def test_a_line_of_a_squashed_commit_counts_for_all_that_recorded_its_file(repository):
    for number, files in ((6, ["both.py"]), (7, ["both.py", "other.py"]), (8, ["other.py"])):
        repository.keep(number, number, [typed(90 + number, f"Build docks for barges number {number}")], files, 99)
    repository.commit(100, {"both.py": lines("both"), "other.py": lines("other")}, 6, 7, 8)
    repository.worked(9, 110, ASKS, {"both.py": rewritten("both", 5)})

    assert {session_id(6): 1.0, session_id(7): 1.0} == asked(repository, 9).answers


def test_a_checkpoint_that_was_made_after_the_question_does_not_count(repository):
    repository.keep(6, 6, [typed(90, "Build docks for barges tomorrow")], ["late.py"], 112)
    repository.commit(113, {"late.py": lines("late")}, 6)
    repository.keep(7, 7, [typed(110, ASKS)], ["late.py"], 120)
    repository.commit(121, {"late.py": rewritten("late", 5)}, 7)

    assert asked(repository, 7).is_none


def test_lines_of_files_that_the_session_did_not_record_are_not_its(repository):
    repository.keep(6, 6, [typed(100, ASKS)], ["a2.py"], 104)
    repository.commit(105, {"a2.py": rewritten("line2", 4), "a3.py": rewritten("line3", 4)}, 6)

    assert {session_id(2): 1.0} == asked(repository).answers


def test_a_blob_that_is_absent_is_empty(repository):
    repository.worked(6, 100, ASKS, {"a2.py": rewritten("line2", 4), "a3.py": rewritten("line3", 4)})
    blob = repository.git("rev-parse", "HEAD:a2.py")
    clone = repository.clone()
    (repository.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    (question,) = questions(clone, transcripts(clone))

    assert session_id(2) not in question.answers


def test_a_long_prompt_is_a_plan(repository):
    repository.worked(6, 100, "Implement the following plan:\n" + f"{ASKS}\n" * 40, {"a2.py": rewritten("line2", 4)})

    assert "plan" == asked(repository).kind
