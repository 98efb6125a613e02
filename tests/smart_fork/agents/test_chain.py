"""The turns in a tree of records that the agent still remembers (B-050, B-077, F-160)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from indexer.transcripts.model import ToolCall, ToolResult, Turn
from smart_fork.agents.tree import Chain
from tests.support.cases import parametrize_subtests

IDS = st.sampled_from("abcdefgh")
RECORDS = st.lists(st.tuples(st.sampled_from(["link", "prompt", "answer"]), IDS, IDS | st.none()), max_size=14)


def turn(identity: str, parent: str | None, **more: object) -> Turn:
    return Turn(identity, parent, "user" if more.get("prompt") else "assistant", "", **more)


def chain(*turns: Turn) -> Chain:
    return Chain(turns)


def ids(found: Chain) -> str:
    return "".join(turn.id for turn in found.active())


def test_the_newer_of_two_branches_is_alive():
    assert "abe" == ids(chain(turn("a", None), turn("b", "a"), turn("c", "b"), turn("d", "c"), turn("e", "b")))


def test_records_that_are_no_conversation_keep_the_way_walkable():
    found = chain(turn("a", None))
    for identity, parent in (("x", "a"), ("y", "x"), ("z", "y")):
        found.link(identity, parent)
    found.add(turn("dead", "x"))
    found.add(turn("b", "z"))

    assert "ab" == ids(found)


def test_a_link_that_leads_nowhere_goes_on_with_what_stands_before():
    found = chain(turn("a", None), turn("b", "a"))
    found.link("boundary", None)
    found.add(turn("c", "boundary"))

    assert "abc" == ids(found)


@parametrize_subtests(
    "alive, after_gap, records",
    [
        ("abcd", "c", [("b", "a"), ("c", "gone"), ("d", "c")]),
        ("abcd", "d", [("b", "gone"), ("c", "b"), ("d", "gone too")]),
        ("abc", "", [("b", "a"), ("c", "b")]),
        ("a", "", []),
    ],
)
def test_the_last_gap_is_where_a_record_before_was_never_written(alive, after_gap, records):
    found = chain(turn("a", None), *(turn(one, parent) for one, parent in records))

    assert alive == ids(found)
    assert after_gap == found.after_gap


def test_a_gap_before_a_link_is_one_before_the_turn_that_follows():
    found = chain(turn("a", None), turn("b", "a"))
    found.link("x", "gone")
    found.add(turn("c", "x"))

    assert "abc" == ids(found)
    assert "c" == found.after_gap


@parametrize_subtests(
    "then, now, gap", [("00:00:01", "00:00:06", ""), ("00:00:00", "00:00:06", "c"), ("00:00:07", "00:00:06", "c")]
)
def test_a_missing_record_of_the_last_five_seconds_is_no_gap(then, now, gap):
    found = chain(turn("a", None), replace(turn("b", "a"), timestamp=f"2026-11-28T{then}Z"))
    found.link("x", "gone", f"2026-11-28T{now}Z")
    found.add(replace(turn("c", "x"), timestamp="2026-11-28T09:00:00Z"))

    assert "abc" == ids(found)
    assert gap == found.after_gap


def test_what_follows_the_first_record_again_has_nothing_of_what_followed_it_before():
    found = chain()
    found.link("x", None)
    for one in (turn("a", "x"), turn("b", "a"), turn("c", "x", prompt=True), turn("d", "c")):
        found.add(one)

    assert "cd" == ids(found)
    assert "" == found.after_gap


def test_the_beginning_is_known_once_what_stands_before_it_has_been_read():
    found = chain(turn("b", "x"), turn("c", "b"))
    assert found.beginning() is None
    found.link("x", "a")
    assert found.beginning() is None
    found.add(turn("a", None))

    assert "a" == found.beginning().id
    assert "abc" == "".join(turn.id for turn in found.in_order())


def test_a_missing_parent_is_bridged():
    assert "abc" == ids(chain(turn("a", None), turn("b", "a"), turn("c", "not in this file")))


def test_a_prompt_without_a_parent_is_a_new_beginning():
    assert "cd" == ids(
        chain(turn("a", None, prompt=True), turn("b", "a"), turn("c", None, prompt=True), turn("d", "c"))
    )


def test_where_no_record_has_a_parent_all_belong_together():
    assert "abc" == ids(chain(turn("a", None, prompt=True), turn("b", None), turn("c", None, prompt=True)))


def test_parallel_calls_and_their_results_stay():
    """Each block of a message is a record of its own, and each result is linked to its own call."""
    calls = [
        turn(name, parent, group="m", tool_calls=(ToolCall(call, "Bash"),))
        for name, parent, call in (("b", "a", "1"), ("c", "b", "2"), ("d", "c", "3"))
    ]
    results = [
        turn(name, parent, tool_results=(ToolResult(call),))
        for name, parent, call in (("e", "b", "1"), ("f", "d", "3"), ("g", "c", "2"))
    ]

    assert "abcdefgh" == ids(chain(turn("a", None, prompt=True), *calls, *results, turn("h", "g")))


def test_results_of_calls_that_were_rewound_are_gone():
    dead = turn("b", "a", tool_calls=(ToolCall("1", "Bash"),))

    assert "ad" == ids(
        chain(turn("a", None, prompt=True), dead, turn("c", "b", tool_results=(ToolResult("1"),)), turn("d", "a"))
    )


def test_the_first_record_of_an_id_counts():
    found = chain(turn("a", None, text="first"), turn("a", None, text="second"))

    assert ["first"] == [turn.text for turn in found.active()]


def test_a_record_written_before_its_parent_stands_after_it():
    """Claude Code 2.1 writes such records: 30 times in 7 of 284 logs of the corpus."""
    assert "abcd" == ids(
        chain(turn("b", "a"), turn("a", None, prompt=True), turn("c", "b", prompt=True), turn("d", "c"))
    )


def test_a_last_prompt_written_after_its_answer_keeps_the_answer():
    found = chain(turn("a", None, prompt=True), turn("b", "a"), turn("d", "x"))
    found.link("x", "c")
    found.add(turn("c", "b", prompt=True))

    assert "abcd" == ids(found)


@parametrize_subtests("parents", ["b a", "a", "c a b", "b c a", "- c b", "- d b c", "b a b c", "d a b c"])
def test_turns_of_a_circle_stand_as_in_the_file(parents):
    names = "abcd"[: len(parents.split())]
    above = [None if parent == "-" else parent for parent in parents.split()]
    found = chain(*map(turn, names, above))

    assert names == ids(found)
    assert found.circular


def test_a_circle_through_a_record_that_is_no_conversation_is_one_too():
    found = chain(turn("a", "x"), turn("b", "a"))
    found.link("x", "a")

    assert ("ab", True) == (ids(found), found.circular)
    assert not chain(turn("a", None), turn("b", "a")).circular


@given(records=RECORDS)
def test_any_graph_in_order_ends_in_its_leaf_and_keeps_the_order_of_the_file(records):
    found, known = Chain(), set()
    for kind, identity, parent in records:
        if identity in known or parent not in {*known, None}:
            continue
        known.add(identity)
        if kind == "link":
            found.link(identity, parent)
        else:
            found.add(turn(identity, parent, prompt=kind == "prompt"))
    names = [turn.id for turn in found.turns]

    active = [turn.id for turn in found.active()]

    assert active == [name for name in names if name in active]
    assert active[-1:] == names[-1:]


@given(records=RECORDS)
def test_no_turn_of_any_graph_is_lost_or_stands_before_its_parent(records):
    whole = Chain()
    for _, identity, parent in records:
        whole.add(turn(identity, parent))
    parents = {one.id: one.parent_id for one in whole.turns}
    found = list(ids(whole))

    assert len(found) == len(set(found))
    for identity in found:
        above, current = [identity], parents[identity]
        while current in parents and current not in above:
            above.append(current)
            current = parents[current]
        if current is None and parents[identity] in found:  # not on a cycle
            assert found.index(parents[identity]) < found.index(identity)


@given(records=RECORDS)
def test_a_chain_that_was_kept_goes_on_as_if_it_had_never_been_left(records):
    whole, parts = Chain(), Chain()
    for kind, identity, parent in records:
        for one in (whole, parts):
            if kind == "link":
                one.link(identity, parent)
            else:
                one.add(turn(identity, parent, prompt=kind == "prompt"))
        parts = Chain(list(parts.turns), parts.links)

    assert whole.active() == parts.active()
