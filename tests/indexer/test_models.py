"""The default model in its light and its heavy form."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.embedding import DEFAULT_MODEL, ModelUnavailableError, SentenceTransformerEmbedder
from indexer.light import LightEmbedder
from indexer.models import FEW_TEXTS, DefaultEmbedder, configured_embedder

TEXTS = [
    "retry a failed upload with exponential backoff",
    "x",
    "",
    "naïve Überprüfung der Größe 東京 🚀",
    "def upload(path: str) -> None:\n    raise TimeoutError(path)\n" * 40,
]


@pytest.fixture(scope="module")
def heavy():
    return SentenceTransformerEmbedder(DEFAULT_MODEL)


def test_the_light_form_gives_the_vectors_of_sentence_transformers(heavy):
    """D13, D15: one index, whichever form made a vector."""
    light = LightEmbedder().embed(TEXTS)
    one_by_one = np.concatenate([heavy.embed([text]) for text in TEXTS])

    assert light.shape == (len(TEXTS), 384)
    assert light.dtype == np.float32
    assert np.abs(light - one_by_one).max() < 1e-5


def test_texts_that_are_embedded_at_once_get_the_vectors_that_each_has_alone():
    light = LightEmbedder()

    assert np.abs(light.embed(TEXTS) - np.concatenate([light.embed([text]) for text in TEXTS])).max() < 1e-5


def test_both_forms_name_the_same_model(heavy):
    assert LightEmbedder().model == heavy.model == DefaultEmbedder().model


@given(st.text(max_size=300))
@settings(max_examples=25)
def test_any_text_has_a_unit_vector(text):
    (vector,) = LightEmbedder().embed([text.encode("utf-8", "replace").decode()])

    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5


def test_no_texts_give_no_vectors():
    assert LightEmbedder().embed([]).shape == (0, 384)


def test_a_question_imports_no_framework():
    """Importing PyTorch would take longer than the answer."""
    program = (
        "import sys; from indexer.models import configured_embedder; e = configured_embedder(); e.embed(['a question']);"
        f"e.embed(['few'] * {FEW_TEXTS - 1});"
        "print([name for name in ('torch', 'transformers', 'sentence_transformers') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"


def test_many_texts_take_the_fast_way_and_agree_with_the_light_one():
    embedder = DefaultEmbedder()
    texts = [f"{number} failed uploads" for number in range(FEW_TEXTS)]

    many, few = embedder.embed(texts), LightEmbedder().embed(texts)

    assert float((many * few).sum(axis=1).min()) > 0.999


def test_another_model_is_left_to_sentence_transformers(monkeypatch, tmp_path):
    monkeypatch.setenv("SMART_FORK_MODEL", str(tmp_path))

    assert isinstance(configured_embedder(), SentenceTransformerEmbedder)


def test_tampered_weights_are_refused(monkeypatch):
    """D15: the packaged weights are checked before they are used."""
    monkeypatch.setattr("indexer.embedding.DEFAULT_WEIGHTS_SHA256", "0" * 64)

    with pytest.raises(ModelUnavailableError, match="not those of"):
        LightEmbedder().embed(["a question"])
