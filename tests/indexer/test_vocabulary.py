"""A tokenizer with a part of the vocabulary gives the tokens of the whole vocabulary."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from indexer.default_embedder import Vocabulary
from indexer.embedder import packaged_model

LIMIT = 32
FILE = packaged_model() / "tokenizer.json"
WORDS = sorted(json.loads(FILE.read_text(encoding="utf-8"))["model"]["vocab"])
PIECES = (
    st.sampled_from(WORDS)
    | st.sampled_from(
        ["[CLS]", "[MASK]", "[SEP]", "[UNK]", "[PAD]", " ", "\n", "##", "getUserById", "y" * 101, "\u0301"]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)


@pytest.fixture(scope="module")
def whole():
    tokenizer = Tokenizer.from_file(str(FILE))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LIMIT)
    return tokenizer


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(FILE, LIMIT)


@given(pieces=st.lists(PIECES, max_size=12), between=st.sampled_from(["", " ", "_"]))
def test_the_tokens_are_those_of_the_whole_vocabulary(whole, vocabulary, pieces, between):
    text = between.join(pieces)

    assert whole.encode(text).ids == vocabulary.ids(text)


def test_a_long_text_is_cut_at_the_limit(whole, vocabulary):
    text = "the upload is tried again " * 20

    assert LIMIT == len(vocabulary.ids(text))
    assert whole.encode(text).ids == vocabulary.ids(text)
