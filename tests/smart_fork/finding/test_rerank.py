"""Tests of reranking the best results, with a small real cross-encoder that is made here."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import smart_fork
from indexer import embedder as module
from indexer.embedder import CrossEncoderReranker, ModelUnavailableError, configured_reranker
from smart_fork.doctor import run_checks
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.finding.search import RERANKED, SHARE, reranked
from smart_fork.finding.session_library import engine
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.searches import find
from tests.support.cases import thorough_except_first

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pytorch")]

RETRY = "add retry with backoff to the uploader"
FIRST, SECOND = f"{RETRY} now", "the uploader"


def cross_encoder(folder: Path, labels: int = 1) -> Path:
    """Make a tiny BERT with random weights from a fixed seed."""
    import torch
    from sentence_transformers import CrossEncoder
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *f"{RETRY} now User : done".split()]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    torch.manual_seed(5)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(
        vocab_size=len(vocabulary), num_labels=labels, max_position_embeddings=64, initializer_range=1.0, **sizes
    )
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=64,
    ).save_pretrained(folder)  # fmt: skip
    CrossEncoder(str(folder), device="cpu", local_files_only=True).save_pretrained(str(folder))
    return folder


def liking(folder: Path, better: str, worse: str) -> Path:
    """Return a cross-encoder that is sure which of two texts answers better."""
    import torch
    from transformers import BertForSequenceClassification

    one, other = map(logit, CrossEncoderReranker(str(cross_encoder(folder)))(RETRY, [better, worse]))
    model = BertForSequenceClassification.from_pretrained(folder)
    steeper = 60 / (one - other)
    with torch.no_grad():
        model.classifier.weight.mul_(steeper)
        model.classifier.bias.sub_((one + other) / 2).mul_(steeper)
    model.save_pretrained(folder)
    return folder


def logit(chance: float) -> float:
    return math.log(chance / (1 - chance))


@pytest.fixture
def two(world, shop) -> list[str]:
    """Return the session that is found first without a reranker, and the next one."""
    world.claude(shop, FIRST, "done")
    world.claude(shop, SECOND, "done")
    return world.ids(RETRY, shop)


def ask(world, shop, rerank=None) -> dict:
    return find(FindRequest(RETRY), Engine(world.model, rerank=rerank), shop).as_json()


@pytest.mark.full
def test_the_order_changes_with_what_the_cross_encoder_says(world, shop, two, tmp_path):
    rerank = CrossEncoderReranker(str(liking(tmp_path, f"User: {SECOND}\ndone", f"User: {FIRST}\ndone")))

    before, after = ask(world, shop), ask(world, shop, rerank)

    assert [hit["session_id"] for hit in after["results"]] == two[::-1]
    assert [hit["session_id"] for hit in before["results"]] == two
    assert "rerank_error" not in after
    scores = [hit["score"] for hit in after["results"]]
    assert sorted(scores, reverse=True) == scores
    assert all(0 <= score <= 1 for score in scores)


@pytest.mark.full
def test_what_it_gives_are_probabilities_one_a_text(tmp_path):
    chances = CrossEncoderReranker(str(cross_encoder(tmp_path)))(RETRY, [FIRST, SECOND, FIRST])

    assert all(0 < chance < 1 for chance in chances)
    assert chances[0] == pytest.approx(chances[2], abs=1e-5)
    assert chances[0] != pytest.approx(chances[1], abs=1e-5)


def broken(folder: Path) -> Path:
    (folder / "config.json").write_text("{broken")
    return folder


def several(folder: Path) -> Path:
    return cross_encoder(folder, labels=3)


def untrained(folder: Path) -> Path:
    config = cross_encoder(folder) / "config.json"
    config.write_text(config.read_text().replace("BertForSequenceClassification", "BertModel"))
    return folder


@pytest.mark.parametrize(
    "made",
    thorough_except_first(
        [[broken, "cannot be loaded"], [several, "does not give one score"], [untrained, "was not trained"]]
    ),
)
@pytest.mark.full
def test_one_that_does_not_work_is_told_and_the_order_stays(world, shop, two, tmp_path, made):
    make, said = made
    answer = ask(world, shop, CrossEncoderReranker(str(make(tmp_path))))

    assert [hit["session_id"] for hit in answer["results"]] == two
    assert said in answer["rerank_error"]
    assert (answer["search_mode"], answer["fallback_used"]) == ("hybrid", False)


@pytest.mark.full
def test_one_that_cannot_be_loaded_is_not_loaded_again(tmp_path, monkeypatch):
    rerank = CrossEncoderReranker(str(broken(tmp_path)))
    with pytest.raises(ModelUnavailableError, match="cannot be loaded"):
        rerank(RETRY, [FIRST])
    monkeypatch.setattr(module, "load", lambda *_: pytest.fail("loaded again"))

    with pytest.raises(ModelUnavailableError, match="cannot be loaded"):
        rerank(RETRY, [FIRST])


def test_the_libraries_that_load_one_show_no_bars_of_their_own(monkeypatch):
    for name in (bars := "HF_HUB_DISABLE_PROGRESS_BARS", words := "TRANSFORMERS_VERBOSITY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def load(_name):
        assert ("1", "error") == (os.environ[bars], os.environ[words])
        raise ModelUnavailableError("seen")

    monkeypatch.setattr(module, "_cross_encoder", load)
    with pytest.raises(ModelUnavailableError, match="seen"):
        CrossEncoderReranker("named")._load()


@pytest.mark.full
def test_a_person_is_told_too(run, two, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("SMART_FORK_RERANKER", str(broken(tmp_path)))

    assert f"Not reranked: the model in {tmp_path} cannot be loaded" in run("find", RETRY).err


@pytest.mark.parametrize("chances", [[float("nan"), 0.5], [0.5], [0.5] * 3])
def test_what_are_no_scores_changes_nothing(chances):
    ranked = [(1, 0.9), (2, 0.8)]

    found, error = reranked(lambda _intent, _texts: chances, "x", ranked, {1: "one", 2: "two"})

    assert found == ranked
    assert error


def test_only_the_best_are_read_and_the_rest_stays_behind_them():
    read: list[str] = []

    def rerank(_intent: str, texts: Sequence[str]) -> list[float]:
        read.extend(texts)
        return [number / len(texts) for number in range(len(texts))]

    ranked = [(row, 1 - row / 100) for row in range(RERANKED + 5)]
    texts = {row: f"passage {row}" for row, _ in ranked if row != 3}

    order = [row for row, _ in reranked(rerank, "x", ranked, texts)[0]]

    assert read == [f"passage {row}" for row in range(RERANKED) if row != 3]
    assert order[0] == RERANKED - 1
    assert order[-5:] == [row for row, _ in ranked[-5:]]
    assert 0 < SHARE < 1


def test_nothing_to_read_is_not_given_to_it():
    assert reranked(lambda *_: 1 / 0, "x", [(1, 0.5)], {}) == ([(1, 0.5)], "")


def test_it_is_the_one_that_the_environment_names(monkeypatch, tmp_path):
    monkeypatch.delenv("SMART_FORK_RERANKER", raising=False)
    assert configured_reranker() is None
    assert engine().rerank is None
    monkeypatch.setenv("SMART_FORK_RERANKER", str(tmp_path))
    assert configured_reranker() is configured_reranker() is engine().rerank


def test_nothing_heavy_is_imported_where_none_is_named(world, shop, two):
    code = (
        "import sys; from indexer.embedder import configured_reranker; import smart_fork.finding.search; "
        "assert configured_reranker() is None; "
        "assert not {'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)"
    )
    root = Path(smart_fork.__file__).parent.parent
    env = {name: value for name, value in os.environ.items() if name != "SMART_FORK_RERANKER"}

    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env=env)


class TestDoctor:
    def check(self, world):
        return next((check for check in run_checks(world.model) if check.name == "reranker"), None)

    def test_without_one_there_is_nothing_to_check(self, world):
        assert self.check(world) is None

    def test_one_that_cannot_be_loaded_has_a_next_step(self, world, tmp_path, monkeypatch):
        monkeypatch.setenv("SMART_FORK_RERANKER", str(broken(tmp_path)))
        check = self.check(world)

        assert (check.ok, check.optional) == (False, True)
        assert "Unset SMART_FORK_RERANKER" in check.next_step

    @pytest.mark.parametrize(("chances", "ok"), [([0.9, 0.1], True), ([0.1, 0.9], False)])
    def test_one_is_asked(self, world, monkeypatch, chances, ok):
        monkeypatch.setenv("SMART_FORK_RERANKER", "named")
        monkeypatch.setattr(module, "_reranker", lambda _name: lambda _intent, _texts: chances)
        check = self.check(world)

        assert (check.ok, bool(check.next_step)) == (ok, not ok)
        assert check.detail.startswith("named, alike")


def test_results_that_were_not_looked_at_stay_behind_in_their_order():
    ranked = [(row, 0.9 - row / 100) for row in range(RERANKED + 3)]
    texts = {row: "passage" for row, _ in ranked}

    again, _ = reranked(lambda _, passages: [0.001] * len(passages), RETRY, ranked, texts)

    assert [row for row, _ in again] == [row for row, _ in ranked]
    assert [score for _, score in again] == sorted((score for _, score in again), reverse=True)
