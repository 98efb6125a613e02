"""Division of pieces into chunks with chained hashes."""

from hypothesis import given
from hypothesis import strategies as st

from indexer.session_export import Piece, chunk, pieces_of, split, to_markdown
from indexer.transcripts.model import ToolCall, ToolResult, Turn
from tests.indexer.index_inputs import moment, piece, session_of

TEXTS = st.text(st.sampled_from("ab.?! \n\t\u2028é\u3000"), max_size=120) | st.text(max_size=60)


@st.composite
def conversations(draw) -> list[Piece]:
    pieces, exchange = [], 0
    for text in draw(st.lists(TEXTS, max_size=8)):
        exchange += draw(st.booleans())
        pieces.append(piece(text, exchange, draw(st.sampled_from(["user", "assistant", "action"])), len(pieces)))
    return pieces


def split_text(text: str, limit: int) -> list[str]:
    return [text[start:end] for start, end in split(text, limit)]


def solid(text: str) -> str:
    return "".join(text.split())


@given(conversations(), st.integers(8, 60))
def test_chunks_hold_every_character_in_order_and_none_is_too_long(pieces, limit):
    chunks = chunk(pieces, "seed", limit)
    labelled = "".join(("User:" if one.role == "user" else "") + solid(one.text) for one in pieces)

    assert labelled == "".join(solid(one.text) for one in chunks)
    assert all(0 < len(one.text) <= limit for one in chunks)


@given(TEXTS, st.integers(1, 40))
def test_splitting_loses_nothing_but_white_space(text, limit):
    parts = split_text(text, limit)

    assert solid(text) == solid("".join(parts))
    assert all(part == part.strip() and 0 < len(part) <= limit for part in parts)


def test_a_text_is_cut_where_it_breaks():
    assert ["One two.", "Three four."] == split_text("One two. Three four.", 12)
    assert ["alpha beta", "gamma"] == split_text("alpha beta\n\ngamma", 14)
    assert ["abcdef", "gh"] == split_text("abcdefgh", 6)


@given(conversations(), conversations(), st.integers(8, 60))
def test_what_is_added_changes_only_chunks_of_the_last_exchange(before, added, limit):
    last = before[-1].exchange if before else 0
    after = [Piece(one.role, one.text, one.turn, one.message_id, one.exchange + last) for one in added]
    old, new = chunk(before, "seed", limit), chunk([*before, *after], "seed", limit)
    kept = [one for one in old if one.exchange < last]

    assert kept == list(new[: len(kept)])


def test_texts_of_pieces_end_their_lines_alike_and_have_one_blank_line_at_a_time():
    session = session_of("a\r\nb\rc\u2028d\x0b\x1ce\n\n\n\nf \n", "\x85\n", "g")

    assert ["a\nb\nc\nd\n\ne\n\nf", "g"] == [one.text for one in pieces_of(session, str)]


@given(conversations(), conversations(), conversations(), st.integers(8, 60))
def test_the_shared_beginning_of_a_fork_has_the_same_hashes(shared, here, there, limit):
    next_ = (shared[-1].exchange if shared else 0) + 1
    tails = [[Piece(o.role, o.text, o.turn, o.message_id, o.exchange + next_) for o in tail] for tail in (here, there)]
    alone = chunk(shared, "family", limit)
    one, other = (chunk([*shared, *tail], "family", limit) for tail in tails)

    assert [c.hash for c in alone] == [c.hash for c in one[: len(alone)]] == [c.hash for c in other[: len(alone)]]


@given(conversations())
def test_a_hash_stands_for_a_text_and_all_that_stood_before(pieces):
    chunks = chunk(pieces, "seed", 20)

    assert len(chunks) == len({one.hash for one in chunks})
    assert not {one.hash for one in chunks} & {one.hash for one in chunk(pieces, "another family", 20)}


@st.composite
def distinct(draw) -> list[Piece]:
    """Return the messages and actions of a session in which no word repeats."""
    number, exchange, pieces = 0, 0, []
    for turn in range(draw(st.integers(1, 8))):
        role = draw(st.sampled_from(["user", "assistant", "action"]))
        exchange += role == "user"
        text = ""
        for space in draw(
            st.lists(st.sampled_from([" ", "\n"] + ["\n\n"] * (role != "action")), min_size=1, max_size=9)
        ):
            text += f"{space if text else ''}w{number}"
            number += 1
        pieces.append(piece(text, exchange, role, turn))
    return pieces


@given(distinct(), st.integers(12, 60), st.sampled_from(["", "/work"]))
def test_a_chunk_is_a_span_of_the_export(pieces, limit, root):
    export = to_markdown(session_of("hi"), pieces, root)
    lines = export.text.split("\n")
    stands_on = {word: number for number, line in enumerate(lines, 1) for word in line.split() if word[0] == "w"}

    for one in chunk(export.pieces, "seed", limit):
        words = one.text.replace("User: ", "").split()
        first, last = one.lines
        assert [stands_on[words[0]], stands_on[words[-1]]] == [first, last]
        spanned = " ".join(lines[first - 1 : last]).split()
        between = spanned[spanned.index(words[0]) : spanned.index(words[-1]) + 1]
        assert words == [word for word in between if word[0] == "w"]


def test_what_is_left_out_of_the_index_is_in_no_span():
    pieces = [piece("ask", 0, "user"), piece("answer")._replace(apart=True), piece("more")]

    assert ["User: ask", "answer\nmore"] == [one.text for one in chunk(pieces, "seed")]


def test_no_chunk_spans_two_exchanges():
    assert ["a\nb", "c"] == [one.text for one in chunk([piece("a", 0), piece("b", 0), piece("c", 1)], "seed")]


def test_a_chunk_is_placed_where_its_first_piece_is():
    (only,) = chunk([piece("ask", role="user", turn=3), piece("answer", turn=4)], "seed")

    assert ("User: ask\nanswer", 3, "m3", "user") == (only.text, only.turn, only.message_id, only.role)


def test_pieces_are_what_was_said_and_a_line_for_each_action():
    calls = (
        ToolCall("c1", "Bash", "run pytest"),
        ToolCall("c2", "mcp__smart-fork__smart_fork", "find x"),
        ToolCall("c3", "Read"),
    )
    results = (ToolResult("c1", is_error=True, note="exit 1"), ToolResult("c2", is_error=True, note="ours"))
    turns = (
        Turn("a", None, "user", moment(0), "fix\0 it", prompt=True),
        Turn("b", "a", "assistant", moment(1), "", tool_calls=calls),
        Turn("c", "b", "tool", moment(2), "", tool_results=results),
        Turn("d", "c", "system", moment(3), "injected"),
        Turn("e", "d", "user", moment(4), "thanks", prompt=True),
    )
    session = session_of()
    object.__setattr__(session, "turns", turns)

    assert [
        Piece("user", "FIX IT", 0, "a", 0), Piece("action", "run pytest -> exit 1", 1, "b", 0), Piece("user", "THANKS", 4, "e", 1),
    ] == list(pieces_of(session, str.upper))  # fmt: skip


def test_each_thing_that_a_person_says_in_an_exchange_has_a_voice_of_its_own():
    """Each message begins with a label of its role, which is not part of the message."""
    (one,) = chunk([piece("Plan caching", role="user"), piece("No redis", role="user"), piece("Then files.")], "seed")

    assert ["user", "assistant"] == [role for _, role in one.voices]
    assert ["User: No redis\n", "Then files."] == [
        one.text[start:end] for (start, _), end in zip(one.voices, [one.voices[1][0], None], strict=True)
    ]
