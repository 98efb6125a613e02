"""The default model with onnxruntime alone, and with sentence-transformers beside it."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer import default_embedder
from indexer.default_embedder import FEW_TEXTS, GRAPH, DefaultEmbedder, LightEmbedder, configured_embedder
from indexer.embedder import DEFAULT_MODEL, ModelUnavailableError, SentenceTransformerEmbedder, packaged_model
from indexer.errors import install_extra
from indexer.locks import NICE
from tests.support.cases import thorough_except_first

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pytorch")]

ROOT = Path(default_embedder.__file__).parent.parent
CORPUS = ROOT.parent / "shared/corpus"
TEXTS = [
    "retry a failed upload with exponential backoff",
    "x",
    "",
    "naïve Überprüfung der Größe 東京 🚀",
    "def upload(path: str) -> None:\n    raise TimeoutError(path)\n" * 40,
]
#: A Python that has none of these, as the light install: to import them fails, and they cannot be found.
WITHOUT_FRAMEWORKS = (
    "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers', 'sentence_transformers')));"
)


@pytest.fixture(scope="module")
def heavy():
    return SentenceTransformerEmbedder(DEFAULT_MODEL)


@pytest.fixture
def without_frameworks(monkeypatch):
    monkeypatch.setattr("indexer.embedder.has_frameworks", lambda: False)
    monkeypatch.setattr(default_embedder, "has_frameworks", lambda: False)


def run(program: str, *arguments: str, **more) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", program, *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, **more)


@pytest.mark.full
def test_the_vectors_are_those_of_sentence_transformers(heavy):
    """D13, D15: one index, whichever engine made a vector."""
    vectors = LightEmbedder().embed(TEXTS)
    one_by_one = np.concatenate([heavy.embed([text]) for text in TEXTS])

    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    assert np.abs(vectors - one_by_one).max() < 1e-5


@pytest.mark.full
@pytest.mark.thorough
def test_what_people_ask_has_the_vectors_of_sentence_transformers(heavy, monkeypatch):
    if not (CORPUS / "queries.jsonl").is_file():
        pytest.skip("needs the corpus beside the checkout")
    monkeypatch.setattr("indexer.embedder._has_bfloat16", lambda: False)
    texts = [
        json.loads(line)["query"] for line in (CORPUS / "queries.jsonl").read_text(encoding="utf-8").splitlines()[::4]
    ]

    assert np.abs(LightEmbedder().embed(texts) - heavy.embed(texts)).max() < 1e-5


@pytest.mark.thorough
def test_texts_that_are_embedded_at_once_get_the_vectors_that_each_has_alone():
    alone, at_once = LightEmbedder(), LightEmbedder(threads=3)
    vectors = np.tile(np.concatenate([alone.embed([text]) for text in TEXTS]), (3, 1))

    assert np.abs(at_once.embed(TEXTS * 3) - vectors).max() < 1e-6
    assert np.abs(alone.embed(TEXTS * 3) - vectors).max() < 1e-6


def test_short_texts_go_through_the_model_together_and_long_ones_alone(monkeypatch):
    embedder, sizes = LightEmbedder(), []
    some = embedder._group_vectors
    monkeypatch.setattr(embedder, "_group_vectors", lambda group: sizes.append(len(group)) or some(group))

    embedder.embed([*["a question in other words"] * 5, TEXTS[-1], "x"])

    assert [5, 1, 1] == sizes


def test_both_engines_name_the_same_model(heavy):
    assert LightEmbedder().model == heavy.model == DefaultEmbedder().model


@given(st.text(max_size=300))
@settings(max_examples=25)
def test_any_text_has_a_unit_vector(text):
    (vector,) = LightEmbedder().embed([text.encode("utf-8", "replace").decode()])

    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5


def test_no_texts_give_no_vectors():
    assert LightEmbedder().embed([]).shape == (0, 384)


@pytest.mark.thorough
def test_the_graph_is_what_its_script_makes():
    import onnx

    specification = importlib.util.spec_from_file_location("minilm_graph", ROOT / "scripts/minilm_graph.py")
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    model = onnx.load(GRAPH, load_external_data=False)

    assert script.model() == model
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def test_weights_behind_links_are_found(tmp_path, monkeypatch):
    """Some installers link the files of packages."""
    (tmp_path / "model").mkdir()
    for file in packaged_model().iterdir():
        (tmp_path / "model" / file.name).symlink_to(file)
    monkeypatch.setattr(default_embedder, "packaged_model", lambda: tmp_path / "model")

    assert LightEmbedder().embed(["a question"]).shape == (1, 384)


def test_tampered_weights_are_refused(monkeypatch):
    """D15: the packaged weights are checked before they are used."""
    monkeypatch.setattr("indexer.embedder.DEFAULT_WEIGHTS_SHA256", "0" * 64)

    with pytest.raises(ModelUnavailableError, match=r"the weights in .* differ from"):
        LightEmbedder().embed(["a question"])


def test_what_cannot_be_loaded_says_so(tmp_path, monkeypatch):
    (tmp_path / "minilm.onnx").write_bytes(b"no graph")
    with monkeypatch.context() as patch:
        patch.setattr(default_embedder, "GRAPH", tmp_path / "minilm.onnx")
        with pytest.raises(ModelUnavailableError, match="onnxruntime cannot load the packaged model"):
            LightEmbedder().embed(["a question"])
    default_embedder._session_in.cache_clear()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelUnavailableError, match="onnxruntime cannot be imported"):
        LightEmbedder().embed(["a question"])


def test_who_embeds_many_texts_can_be_ended_between_two_of_them(monkeypatch):
    embedder, started = LightEmbedder(), threading.Event()
    some = embedder._group_vectors

    def watched(group):
        started.set()
        return some(group)

    monkeypatch.setattr(embedder, "_group_vectors", watched)
    problems: list[str] = []

    def work():
        try:
            embedder.embed(["many"] * 100_000)  # far more than anybody waits for
        except ModelUnavailableError as error:
            problems.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    embedder.close()
    thread.join()

    assert ["the process is ending"] == problems


def test_a_question_imports_no_framework():
    """Importing PyTorch would take longer than the answer."""
    program = (
        "import sys; from indexer.default_embedder import configured_embedder; e = configured_embedder(); e.embed(['a question']);"
        f"e.embed(['few'] * {FEW_TEXTS - 1});"
        "print([name for name in ('torch', 'transformers', 'sentence_transformers', 'onnx') if name in sys.modules])"
    )

    assert "[]" == run(program).stdout.strip()


@pytest.mark.parametrize("switch", thorough_except_first([None, "0"]))
def test_onnxruntime_reports_to_nobody_and_is_not_seen_on_the_terminal(home, monkeypatch, switch):
    """Its report would be collected in a file in the home immediately."""
    if switch is not None:
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", switch)
    before = os.environ.get("ORT_DISABLE_TELEMETRY", "left out")
    ran = run(
        f"{WITHOUT_FRAMEWORKS} from indexer.default_embedder import LightEmbedder; LightEmbedder().embed(['hi', 'ho']);"
        "import os; print(os.environ.get('ORT_DISABLE_TELEMETRY', 'left out'))"
    )

    assert (before, "") == (ran.stdout.strip(), ran.stderr)
    assert ["weights-checked"] == [path.name for path in home.rglob("*") if path.is_file()]


@pytest.mark.full
def test_many_texts_take_the_fast_way_and_agree_with_the_light_one():
    embedder = DefaultEmbedder()
    texts = [f"{number} failed uploads" for number in range(FEW_TEXTS)]

    many, few = embedder.embed(texts), LightEmbedder().embed(texts)

    assert isinstance(embedder._heavy, SentenceTransformerEmbedder)
    assert float((many * few).sum(axis=1).min()) > 0.999


@pytest.mark.thorough
def test_many_texts_are_embedded_without_the_frameworks_as_well():
    program = (
        f"{WITHOUT_FRAMEWORKS} import psutil; from indexer.default_embedder import LightEmbedder, configured_embedder;"
        f"texts = [f'{{n}} failed uploads' for n in range({FEW_TEXTS})];"
        "e = configured_embedder(background=sys.argv[1] == 'background'); e.begin(); many = e.embed(texts);"
        "print(psutil.Process().children(), abs(many - LightEmbedder().embed(texts)).max())"
    )

    assert "[] 0.0" == run(program, "background").stdout.strip()
    assert "[] 0.0" == run(program, "waited for").stdout.strip()


@pytest.mark.thorough
def test_without_the_frameworks_many_texts_take_one_core_unless_somebody_waits(without_frameworks, monkeypatch):
    monkeypatch.setattr(default_embedder, "processors", lambda: 5)
    threads: set[str] = set()
    some = LightEmbedder._group_vectors

    def watched(self, group):
        threads.add(threading.current_thread().name)
        return some(self, group)

    monkeypatch.setattr(LightEmbedder, "_group_vectors", watched)
    texts = ["many " * (default_embedder.GROUP_TOKENS // 2)] * 10
    configured_embedder(background=True).embed(texts)
    assert {threading.current_thread().name} == threads

    threads.clear()
    configured_embedder().embed(texts)
    assert {f"embed_{number}" for number in range(5)} >= threads
    assert len(threads) > 1


@pytest.mark.full
def test_frameworks_that_fail_are_left_for_good(monkeypatch, caplog):
    tried: list[int] = []

    def broken(self, texts):
        tried.append(len(texts))
        raise ModelUnavailableError("no libgomp")

    monkeypatch.setattr(SentenceTransformerEmbedder, "embed", broken)
    embedder = DefaultEmbedder()
    for _ in range(2):
        assert (FEW_TEXTS, 384) == embedder.embed(["many"] * FEW_TEXTS).shape

    assert [FEW_TEXTS] == tried
    assert ["onnxruntime embeds instead of sentence-transformers: no libgomp"] == caplog.messages


def test_another_model_is_left_to_sentence_transformers(monkeypatch, tmp_path):
    monkeypatch.setenv("SMART_FORK_MODEL", str(tmp_path))

    assert isinstance(configured_embedder(), SentenceTransformerEmbedder)


@pytest.mark.full
def test_another_model_says_what_it_needs_in_the_light_install(monkeypatch, without_frameworks):
    monkeypatch.setenv("SMART_FORK_MODEL", "some/other-model")
    with pytest.raises(ModelUnavailableError) as refused:
        configured_embedder().embed(["a question"])

    assert "SMART_FORK_MODEL names some/other-model, which needs sentence-transformers" in str(refused.value)
    assert f"`{install_extra('sentence-transformers')}`. Or unset SMART_FORK_MODEL" in str(refused.value)
    monkeypatch.setattr("indexer.embedder.has_frameworks", lambda: True)  # installed meanwhile: it is tried at once
    with pytest.raises(ModelUnavailableError, match="neither found nor downloaded"):
        configured_embedder().embed(["a question"])


@pytest.mark.full
@pytest.mark.thorough
def test_the_process_that_embeds_takes_one_core_and_steps_back_unless_somebody_waits(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    program = """
import os, sys
from indexer import default_embedder
class Telling:
    def __init__(self, name): pass
    def embed(self, texts):
        import torch
        print(torch.get_num_threads(), os.getpriority(os.PRIO_PROCESS, 0), flush=True)
default_embedder.SentenceTransformerEmbedder = Telling
default_embedder.main()
"""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    line, life = os.pipe(), os.pipe()
    try:

        def told(*words: str) -> list[int]:
            arguments = (str(line[0]), str(life[0]), "0", *words)
            return [int(word) for word in run(program, *arguments, pass_fds=(line[0], life[0])).stdout.split()]

        threads, nice = told()
        assert (1, max(NICE, before)) == (threads, nice)
        threads, nice = told("waited-for")
        assert (os.cpu_count() == 1 or threads > 1, before) == (True, nice)
    finally:
        for end in (*line, *life):
            os.close(end)
