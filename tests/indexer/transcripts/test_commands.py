"""A pattern parses command lines as `shlex` does."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.transcripts.commands import _BETWEEN, _PARTS, _words, simple_commands

PIECES = st.sampled_from(
    [
        "cd",
        "a.b/c",
        "--x=1",
        "$HOME",
        "é",
        "*?",
        "&&",
        "||",
        "|",
        ";",
        "(",
        ")",
        "&",
        "\n",
        "\x0b",
        "\0",
        "#",
        "'",
        '"',
        "\\",
    ]
)
SPACES = st.sampled_from(["", " ", "  ", "\t", "\r", "\n", "\xa0"])


@given(pieces=st.lists(st.tuples(PIECES, SPACES) | st.tuples(st.text(max_size=4), SPACES), max_size=12))
def test_the_words_are_those_of_shlex(pieces):
    line = "".join(piece + space for piece, space in pieces)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_PARTS)
    lexer.whitespace, lexer.whitespace_split = _BETWEEN, True
    try:
        expected = list(lexer)
    except ValueError:
        with pytest.raises(ValueError, match="never closed"):
            _words(line)
        return

    assert expected == _words(line)


def test_commands_are_parted_with_and_without_quotation_marks():
    assert [("cd", "a"), ("make", "test")] == list(simple_commands("cd a && make test"))
    assert [("cd", "a b"), ("make",)] == list(simple_commands("cd 'a b'; make # all"))
