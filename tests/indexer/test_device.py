"""Embedding on a GPU that gives the processor's vectors, and on the processor when the GPU fails.

This machine has no GPU. ``cpu:0`` counts as one: a device to which the model moves. ``meta`` takes every model and then
fails. ``cuda`` is a device that PyTorch does not have.
"""

from __future__ import annotations

import numpy as np
import pytest

from indexer import embedder as embedding
from indexer.embedder import SentenceTransformerEmbedder, best_device
from tests.support.cases import thorough_except_first

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.xdist_group("pytorch")]

TEXTS = ["retry the upload with exponential backoff", "make the button blue"]


@pytest.fixture(scope="module", autouse=True)
def torch():
    """PyTorch, imported by the running test and not by each process that collects tests."""
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def expected():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "best_device", lambda: "cpu")
        patch.setattr(embedding, "_has_bfloat16", lambda: False)
        return SentenceTransformerEmbedder().embed(TEXTS)


def on(name: str, monkeypatch) -> SentenceTransformerEmbedder:
    monkeypatch.setattr(embedding, "best_device", lambda: name)
    monkeypatch.setattr(embedding, "_has_bfloat16", lambda: False)
    return SentenceTransformerEmbedder()


@pytest.mark.parametrize(("cuda", "mps", "best"), [(0, 0, "cpu"), (0, 1, "mps"), (1, 0, "cuda"), (1, 1, "cuda")])
def test_a_gpu_is_used_where_pytorch_has_one(torch, monkeypatch, cuda, mps, best):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(cuda))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: bool(mps))

    assert best == best_device()
    monkeypatch.setenv("SMART_FORK_DEVICE", " CPU ")
    assert "cpu" == best_device()


def test_a_driver_that_is_half_installed_is_no_gpu(torch, monkeypatch, caplog):
    def broken():
        raise RuntimeError("driver too old")

    monkeypatch.setattr(torch.cuda, "is_available", broken)

    assert ("cpu", "no GPU can be used: driver too old") == (best_device(), caplog.messages[-1])


@pytest.mark.thorough  # where there is none, as on most machines, PyTorch plays one
def test_on_a_gpu_everything_is_in_full_precision(monkeypatch, expected):
    embedder = on("cpu:0", monkeypatch)
    monkeypatch.setattr(embedding, "_has_bfloat16", lambda: True)

    assert np.allclose(expected, embedder.embed(TEXTS), atol=1e-5)
    assert "cpu:0" == embedder._device


@pytest.mark.parametrize("name", thorough_except_first(["meta", "cuda", "no-such-device"]))
def test_a_gpu_that_cannot_be_used_is_passed_over_with_a_note(monkeypatch, caplog, expected, name):
    embedder = on(name, monkeypatch)

    assert np.allclose(expected, embedder.embed(TEXTS), atol=1e-5)
    (note,) = [text for text in caplog.messages if "cannot be used" in text]
    assert note.startswith(f"{name} cannot be used (")
    assert note.endswith("): passages are embedded on the processor")


def test_a_gpu_that_gives_other_vectors_is_not_relied_on(monkeypatch, caplog, expected):
    real = embedding._on_gpu
    monkeypatch.setattr(embedding, "_on_gpu", lambda model, texts: real(model, texts)[:, ::-1])

    assert np.allclose(expected, on("cpu:0", monkeypatch).embed(TEXTS), atol=1e-5)
    assert "cpu:0 cannot be used (its vectors differ from the processor's)" in caplog.text


@pytest.mark.parametrize("what", thorough_except_first(["no memory", "no numbers"]))
def test_a_gpu_that_fails_later_is_left_for_good(torch, monkeypatch, caplog, expected, what):
    embedder = on("cpu:0", monkeypatch)
    embedder.embed(TEXTS)
    first, asked = embedder._loaded, []

    def encode(texts, **_):
        asked.append(texts)
        if what == "no memory":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return np.full((len(texts), 384), np.nan, np.float32)

    monkeypatch.setattr(first, "encode", encode)
    for _ in range(2):
        assert np.allclose(expected, embedder.embed(TEXTS), atol=1e-5)

    assert (1, True) == (len(asked), embedder._loaded is not first)
    assert 1 == caplog.text.count("cpu:0 cannot be used")
