"""Loading a model is reported to the caller that waits, whatever loads the model."""

from __future__ import annotations

import numpy as np
import pytest

from indexer import default_embedder
from indexer.default_embedder import ProcessEmbedder
from indexer.embedder import SentenceTransformerEmbedder, loading, reporting_loading

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pytorch")]


class Told(list):
    def __call__(self, *stage) -> None:
        self.append(stage)


LOADED = [("loading", 0, 1), ("loading", 1, 1)]


def test_it_is_told_in_its_context_alone():
    told, other = Told(), Told()
    with loading():
        pass
    with reporting_loading(told):
        with reporting_loading(other), loading():
            pass
        with reporting_loading(None), loading():
            pass
        assert [] == told
        with loading():
            pass

    assert LOADED == told == other


@pytest.mark.full
def test_a_model_is_loaded_once(monkeypatch):
    class Model:
        def encode(self, texts, **_):
            return np.ones((len(texts), 2), np.float32)

    monkeypatch.setattr(SentenceTransformerEmbedder, "_unless_absent", lambda _: Model())
    monkeypatch.setattr("indexer.embedder.best_device", lambda: "cpu")
    embedder, told = SentenceTransformerEmbedder("x"), Told()

    with reporting_loading(told):
        embedder.embed(["one"])
        embedder.embed(["two"])

    assert LOADED == told


def test_a_process_of_its_own_loads_it_with_its_first_answer(monkeypatch):
    class Line:
        def send_bytes(self, _) -> None:
            self.left = [b"", np.ones((1, 2), np.float32).tobytes()]

        def recv_bytes(self) -> bytes:
            return self.left.pop(0)

    lines = [Line(), Line()]
    monkeypatch.setattr(default_embedder, "_start", lambda *_: (lines.pop(), None))
    embedder, told = ProcessEmbedder(), Told()

    with reporting_loading(told):
        for _ in range(2):
            embedder.embed(["one"])
        embedder._connection = None  # it had nothing to do for long, and has ended
        embedder.embed(["two"])

    assert 2 * LOADED == told


def test_one_that_cannot_be_loaded_is_not_told_to_be(monkeypatch):
    told = Told()
    with reporting_loading(told), pytest.raises(OSError, match="gone"), loading():
        raise OSError("gone")

    assert LOADED[:1] == told
