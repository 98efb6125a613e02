"""The figures: what each means, and its spread."""

from __future__ import annotations

import pytest

from benchmarks.which_session import figures
from benchmarks.which_session.labels import Question

pytestmark = pytest.mark.thorough  # of the benchmarks, which no user runs


def question(number: int = 1, kind: str = "typed", **answers: float) -> Question:
    return Question(
        f"harbor:{number}",
        str(number),
        "",
        kind,
        "main",
        number,
        "c0",
        "c0",
        answers,
        answers | {"w": 0.1} if answers else {},
        (),
    )


def test_a_right_answer_has_a_fifth_of_the_lines_and_by_the_wider_label_any():
    one = figures.asked(question(a=0.8, b=0.1), ["x", "w", "b", "a"])

    assert (4, 2) == (one.rank, one.wide)


def test_the_gain_of_a_result_is_its_share_of_the_lines():
    assert 1.0 == figures.ndcg(["a", "b"], {"a": 0.7, "b": 0.3})
    assert figures.ndcg(["b", "a"], {"a": 0.7, "b": 0.3}) == pytest.approx(
        (0.3 + 0.7 / 1.585) / (0.7 + 0.3 / 1.585), abs=1e-3
    )
    assert 0.0 == figures.ndcg(["x"] * 5 + ["a"], {"a": 1.0})


def test_rates_are_told_by_kind_over_the_questions_that_have_an_answer():
    answers = [
        figures.asked(question(1, "plan", a=1.0), ["a"]),
        figures.asked(question(2, "typed", a=1.0), ["x", "y", "a"]),
        figures.asked(question(3, "typed"), ["a"]),
    ]
    told = figures.rates(answers, seed=1)

    assert 2 == told["all"]["questions"]
    assert 0.5 == told["all"]["hit@1"][0]
    assert 1.0 == told["all"]["hit@5"][0]
    assert [1.0, 1.0, 1.0] == told["plan"]["MRR"]
    assert 0.333 == told["typed"]["MRR"][0]


def test_a_spread_is_the_same_for_the_same_seed_and_holds_the_mean():
    values = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    mean, low, high = figures.spread(values, seed=7)

    assert [mean, low, high] == figures.spread(values, seed=7)
    assert low < mean == 0.5 < high
    assert figures.spread([], seed=7) is None


def test_a_difference_is_taken_question_by_question():
    ours = [figures.asked(question(n, a=1.0), ["a"]) for n in range(4)]
    theirs = [figures.asked(question(n, a=1.0), ["x", "a"]) for n in range(4)]

    assert [1.0, 1.0, 1.0] == figures.difference(ours, theirs, 1)["all"]["hit@1"]
    assert [0.5, 0.5, 0.5] == figures.difference(ours, theirs, 1)["all"]["MRR"]


def test_scores_are_held_against_what_is_right_by_the_wider_label():
    answers = [figures.asked(question(n, a=1.0), ["w" if n % 2 else "x"], score=0.9) for n in range(4)]
    answers.append(figures.asked(question(5), ["x"], score=0.6))
    told = figures.calibration(answers, 1)

    assert 0.9 == told["mean score"][0]
    assert 0.5 == told["right, wider label"][0]
    assert 0.4 == told["score minus right"][0]
    assert 0.4 == told["expected calibration error"]
    assert 1 == told["questions that nothing answers"]
    assert 1.0 == told["of these: first at 0.5 or more"][0]
