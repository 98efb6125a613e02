"""The embedding model: its name, its verification, and its silence."""

import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import indexer
from indexer import embedder as embedding
from indexer.embedder import DEFAULT_MODEL, ModelUnavailableError, SentenceTransformerEmbedder, packaged_model
from indexer.safe_files import state_home

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pytorch")]

ROOT = Path(indexer.__file__).parent.parent
TEXTS = [
    "retry the upload with exponential backoff",
    "the uploader should wait and try again when the server is busy",
    "make the button blue",
    "x",
    "long " * 60,
]


@pytest.fixture(scope="module")
def embedder():
    """An embedder that is loaded while each connection and each lookup of an address fails."""

    def forbidden(*_, **__):
        pytest.fail("the network was asked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", forbidden)
        patch.setattr(socket, "getaddrinfo", forbidden)
        loaded = SentenceTransformerEmbedder()
        loaded.embed(["hi", "ho"])
    return loaded


@pytest.mark.full
def test_vectors_are_of_unit_length_and_near_where_the_meaning_is(embedder):
    vectors = embedder.embed(TEXTS)

    assert ((5, 384), np.float32, 384) == (vectors.shape, vectors.dtype, embedder.dimensions)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.1 + vectors[0] @ vectors[2]


@pytest.mark.thorough
@pytest.mark.full
def test_a_question_fits_the_index_whatever_the_precision(embedder, monkeypatch):
    alone = np.stack([embedder.embed([text])[0] for text in TEXTS])
    monkeypatch.setattr(embedding, "_has_bfloat16", lambda: True)
    fast = embedder.embed(TEXTS)
    monkeypatch.setattr(embedding, "_has_bfloat16", lambda: False)
    full = embedder.embed(TEXTS)

    assert np.allclose(alone, full, atol=1e-5)
    assert not np.allclose(fast, full, atol=1e-5)
    assert np.allclose(np.linalg.norm(fast, axis=1), 1, atol=1e-5)
    assert (np.sum(fast * full, axis=1) > 0.9995).all()


@pytest.mark.parametrize(
    ("flags", "native"), [("fpu avx512f", False), ("avx512f avx512_bf16", True), ("amx_bf16", True), (None, False)]
)
def test_bfloat16_is_used_where_the_processor_has_it(monkeypatch, flags, native):
    def read_text(*_, **__):
        if flags is None:
            raise FileNotFoundError
        return f"flags : {flags}\n"

    monkeypatch.setattr(embedding, "Path", lambda _: SimpleNamespace(read_text=read_text))
    assert native == embedding._has_bfloat16.__wrapped__()


def test_the_default_model_is_named_with_its_weights(monkeypatch):
    assert f"{DEFAULT_MODEL}@53aa51172d14" == SentenceTransformerEmbedder().model
    monkeypatch.setenv("SMART_FORK_MODEL", "some/other-model")
    assert "some/other-model" == SentenceTransformerEmbedder().model


def test_a_folder_is_another_model_when_its_files_change(tmp_path):
    (tmp_path / "weights").write_text("one")
    before = SentenceTransformerEmbedder(str(tmp_path)).model
    assert before == SentenceTransformerEmbedder(str(tmp_path)).model

    (tmp_path / "weights").write_text("other")
    assert before != SentenceTransformerEmbedder(str(tmp_path)).model


def package_in(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(embedding, "find_spec", lambda _: SimpleNamespace(origin=str(folder / "__init__.py")))


@pytest.mark.full
def test_weights_that_were_tampered_with_are_refused(tmp_path, monkeypatch):
    shutil.copytree(packaged_model(), tmp_path / "model")
    package_in(tmp_path, monkeypatch)
    assert tmp_path / "model" == packaged_model()

    with (tmp_path / "model/model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x99")
    with pytest.raises(ModelUnavailableError, match=r"the weights in .* differ from"):
        SentenceTransformerEmbedder().embed(["hi"])


def test_weights_are_read_again_only_when_the_file_has_changed(monkeypatch):
    packaged_model()
    assert 0o600 == stat.S_IMODE((state_home() / "weights-checked").stat().st_mode)
    monkeypatch.setattr(embedding.hashlib, "file_digest", lambda *_: pytest.fail("read again"))
    assert packaged_model().is_dir()

    monkeypatch.setattr(embedding, "DEFAULT_WEIGHTS_SHA256", "of a newer version")
    with pytest.raises(pytest.fail.Exception):
        packaged_model()


@pytest.mark.full
def test_a_missing_package_or_folder_says_what_to_do(tmp_path, monkeypatch):
    package_in(tmp_path, monkeypatch)
    with pytest.raises(ModelUnavailableError, match="reinstall"):
        SentenceTransformerEmbedder().embed(["hi"])
    with monkeypatch.context() as patch:
        patch.setattr(embedding, "find_spec", lambda _: None)
        with pytest.raises(ModelUnavailableError, match="reinstall"):
            SentenceTransformerEmbedder().embed(["hi"])
    with pytest.raises(ModelUnavailableError, match="cannot be loaded"):
        SentenceTransformerEmbedder(str(tmp_path)).embed(["hi"])


@pytest.mark.full
def test_a_model_that_is_neither_here_nor_to_be_had_says_so():
    with pytest.raises(ModelUnavailableError, match="neither found nor downloaded"):
        SentenceTransformerEmbedder("nobody/has-this-model").embed(["hi"])


@pytest.mark.full
@pytest.mark.thorough
def test_loading_is_silent_and_needs_no_network(monkeypatch):
    """Runs in another process that dies at each connection or lookup of an address."""
    script = """
import os, sys
def alone(event, _):
    if event in ("socket.connect", "socket.getaddrinfo"):
        os.write(2, f"forbidden: {event}".encode()); os._exit(9)
sys.addaudithook(alone)
from indexer.embedder import SentenceTransformerEmbedder
assert SentenceTransformerEmbedder().embed(["hi", "ho"]).shape == (2, 384)
"""
    monkeypatch.delenv("HF_HUB_OFFLINE")
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (0, "") == (run.returncode, run.stdout), run.stderr


def test_nothing_heavy_is_imported_before_the_first_text():
    script = "import sys; from indexer.embedder import SentenceTransformerEmbedder as S; S().model; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    assert set() == {"torch", "sentence_transformers", "transformers", "numpy"} & set(run.stdout.split())
