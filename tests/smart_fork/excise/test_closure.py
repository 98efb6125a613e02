"""The turns that are cut together, case by case."""

from __future__ import annotations

from pathlib import Path

import pytest

from smart_fork.agents.excision.transcript import Call, CutWarning, Result
from smart_fork.excise import Refused, Session, Turn, closure, plan, verify
from smart_fork.excise.cut_plan import CutPlan, repeated_lines, results_without_call


def turn(name: str, calls: str = "", results: str = "", **more: object) -> Turn:
    return Turn(
        name, tool_calls=tuple(Call(one, "T") for one in calls), tool_results=tuple(map(Result, results)), **more
    )


def test_results_go_with_their_calls_wherever_they_are():
    """E-030, E-036: several results of one call, several calls in one turn, results in several turns."""
    turns = [
        turn("a", "xy"),
        turn("r1", "", "x"),
        turn("r2", "", "x"),
        turn("r3", "", "y"),
        turn("b", "z"),
        turn("r4", "", "z"),
    ]

    assert {"a", "r1", "r2", "r3"} == closure(turns, {"a"})
    assert {"r1"} == closure(turns, {"r1"})
    assert set() == closure(turns, {"unknown"})


def test_a_turn_with_results_of_two_calls_names_the_one_that_stays():
    """E-037, E-038."""
    turns = [turn("a", "x"), turn("b", "y"), turn("r", "", "xy")]
    gone = closure(turns, {"a"})

    assert {"a", "r"} == gone
    assert [CutWarning("r", "holds the result of y, but its call stays in turn b")] == verify(turns, gone)
    assert [] == verify(turns, {"a", "b", "r"})


def test_a_plan_checks_what_goes_with_what_was_named_and_not_only_that():
    """E-037, E-071: the call alone breaks nothing; what its closure takes does."""
    turns = (turn("a", "x", role="assistant"), turn("b", "y", role="assistant"), turn("r", "", "xy", role="tool"))
    session = Session("claude", Path("x.jsonl"), "x", turns)

    planned = plan(session, {"a"})

    assert [] == verify(turns, {"a"})
    assert (CutWarning("r", "holds the result of y, but its call stays in turn b"),) == planned.warnings
    with pytest.raises(Refused, match="but its call stays in turn b"):
        CutPlan.refuse(planned)


def test_warnings_are_sorted_and_only_for_calls_that_are_there():
    """E-038."""
    turns = [turn("a", "xy"), turn("r2", "", "y"), turn("r1", "", "x"), turn("r0", "", "lost")]

    assert ["r1", "r2"] == [one.turn_id for one in verify(turns, {"r0", "r1", "r2"})]


def test_an_id_that_is_used_twice_belongs_to_the_call_before_each_result():
    """E-039."""
    turns = [turn("a", "x"), turn("ra", "", "x"), turn("b", "x"), turn("rb", "", "x")]

    assert {"a", "ra"} == closure(turns, {"a"})
    assert {"b", "rb"} == closure(turns, {"b"})


def test_a_record_that_is_there_twice_goes_as_a_whole():
    turns = [
        turn("a", "x", key="k", timestamp="1"),
        turn("ra", "", "x"),
        turn("b", "y", key="k", timestamp="1"),
        turn("rb", "", "y"),
        turn("later", key="k", timestamp="2"),
        turn("above", key="k", timestamp="1", inherited=True),
        turn("c"),
        turn("d"),
    ]

    assert {"a", "ra", "b", "rb"} == closure(turns, {"a"}) == closure(turns, {"b"})
    assert ({"later"}, {"c"}) == (closure(turns, {"later"}), closure(turns, {"c"}))


def test_circles_and_empty_ids_end():
    """E-035, E-036."""
    turns = [
        turn("a", "x", "y"),
        turn("b", "y", "x"),
        Turn("c", tool_calls=(Call("", "T"),), tool_results=(Result(""),)),
    ]

    assert {"a", "b"} == closure(turns, {"a"}) == closure(turns, {"b"})
    assert {"c"} == closure(turns, {"c"})
    assert [] == verify(turns, {"c"})


def test_a_result_without_a_call_before_it_dangles():
    """E-039, E-041."""
    turns = [turn("r", "", "x"), turn("a", "x")]

    assert ["r"] == [one.turn_id for one in results_without_call(turns)]
    assert [] == results_without_call(turns[::-1])


def test_what_is_repeated_of_something_that_stays_stays():
    turns = [
        turn("a", says=("k", "turn:a")),
        turn("b", says=("k", "turn:b")),
        turn("e", repeats=("k",)),
        turn("f", repeats=("turn:a",)),
    ]

    assert {"f"} == repeated_lines(turns, {"a"})
    assert {"e", "f"} == repeated_lines(turns, {"a", "b"})
