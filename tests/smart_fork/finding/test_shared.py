"""Tests of the model that all questions of a process share, and that is loaded beside other work."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from indexer.default_embedder import DefaultEmbedder
from indexer.embedder import ModelUnavailableError
from indexer.shared_embedder import TURN_TEXTS, SharedEmbedder
from tests.smart_fork.world import DIMENSIONS, BrokenModel, WordsModel


class Slow(WordsModel):
    def __init__(self) -> None:
        super().__init__()
        self.loaded = threading.Event()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.loaded.wait()
        return super().embed(texts)


def test_it_embeds_as_the_model_itself_does():
    texts = [f"text {number}" for number in range(3 * TURN_TEXTS + 1)]
    model = SharedEmbedder(WordsModel(), 60)

    assert np.array_equal(WordsModel().embed(texts), model.embed(texts))
    assert (model.model, model.dimensions) == ("words", DIMENSIONS)


def test_it_is_loaded_once_for_all_who_ask():
    inner = WordsModel()
    model = SharedEmbedder(inner, 60)
    threads = [threading.Thread(target=model.embed, args=(["x"],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert inner.asked.count("warm") == 1


def test_a_process_that_ends_waits_for_no_model():
    slow = Slow()
    SharedEmbedder(slow, 0.0).start()

    waited_for = [one for one in threading.enumerate() if one.name == "load model" and not one.daemon]

    slow.loaded.set()
    assert [] == waited_for


def test_nobody_waits_longer_than_allowed_and_later_it_answers():
    slow = Slow()
    model = SharedEmbedder(slow, 0.0)
    with pytest.raises(ModelUnavailableError, match="still loading"):
        model.embed(["x"])
    with pytest.raises(ModelUnavailableError):
        _ = model.dimensions

    slow.loaded.set()
    model.start().result()

    assert model.embed(["x"]).shape == (1, DIMENSIONS)


def test_why_it_cannot_be_loaded_is_told_to_everybody():
    model = SharedEmbedder(BrokenModel(), 60)

    for _ in range(2):
        with pytest.raises(ModelUnavailableError, match="no weights"):
            model.embed(["x"])


def test_long_work_lets_others_in_between():
    turns = []

    class Watching(WordsModel):
        def embed(self, texts: Sequence[str]) -> np.ndarray:
            turns.append(len(texts))
            return super().embed(texts)

    SharedEmbedder(Watching(), 60).embed(["x"] * (2 * TURN_TEXTS + 3))

    assert turns == [1, TURN_TEXTS, TURN_TEXTS, 3]


def test_a_question_to_the_default_model_does_not_wait_for_what_is_being_indexed(monkeypatch):
    """The default model has a separate engine for single texts."""
    indexing, done = threading.Event(), threading.Event()

    class Default(DefaultEmbedder):
        def embed(self, texts: Sequence[str]) -> np.ndarray:
            if len(texts) > 1:
                indexing.set()
                done.wait()
            return WordsModel().embed(texts)

    model = SharedEmbedder(Default(), 60)
    other = threading.Thread(target=model.embed, args=(["x"] * TURN_TEXTS,))
    other.start()
    indexing.wait()
    try:
        assert model.embed(["question"]).shape == (1, DIMENSIONS)
    finally:
        done.set()
        other.join()
