"""What of a tree of records the agent still remembers (B-050, B-077, F-160)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexer.transcripts.chain import Chain
from indexer.transcripts.model import ToolCall, ToolResult, Turn

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


def test_a_missing_parent_is_bridged():
    assert "abc" == ids(chain(turn("a", None), turn("b", "a"), turn("c", "not in this file")))


def test_a_prompt_without_a_parent_is_a_new_beginning():
    assert "cd" == ids(
        chain(turn("a", None, prompt=True), turn("b", "a"), turn("c", None, prompt=True), turn("d", "c"))
    )


def test_where_no_record_has_a_parent_all_belong_together():
    assert "abc" == ids(chain(turn("a", None, prompt=True), turn("b", None), turn("c", None, prompt=True)))


def test_parallel_calls_and_their_results_stay():
    """Each block of a message is a record of its own, and each result hangs on its own call."""
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


@given(records=RECORDS)
def test_any_graph_ends_in_its_leaf_and_keeps_the_order_of_the_file(records):
    found = Chain()
    for kind, identity, parent in records:
        if kind == "link":
            found.link(identity, parent)
        else:
            found.add(turn(identity, parent, prompt=kind == "prompt"))
    names = [turn.id for turn in found.turns]

    active = [turn.id for turn in found.active()]

    assert active == [name for name in names if name in active]
    assert active[-1:] == names[-1:]


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
