"""A question is embedded and compared by a process beside the one that asks, bit for bit as that would."""

import os

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer import question_process
from indexer.light import LightEmbedder
from indexer.question_process import GoneError, QuestionProcess
from indexer.store.base import Scope
from indexer.store.compared import ComparedSimilarities
from indexer.store.nearest import NearestSimilarities, coded, compared
from indexer.store.sqlite import SqliteStore
from tests.indexer.written import save, session_of, vector_of

#: Few enough that equals are frequent.
COSINES = st.sampled_from([-1.0, -0.25, 0.0, 0.1, 0.25, 1.0])


@pytest.fixture(scope="module")
def beside():
    process = QuestionProcess()
    yield process
    process.close()


def test_it_embeds_and_compares_as_this_process_does(beside):
    texts = ["retry the upload", "Größe der Bilder", "x " * 900]
    vectors = beside.embed(texts)
    codes = b"".join(coded(vectors[:2]))

    assert [one.tobytes() for one in LightEmbedder().embed(texts)] == vectors
    assert compared(codes, vectors) == beside.compare(codes, vectors)
    assert b"" == beside.compare(b"", vectors)


def test_what_it_cannot_do_is_said_and_it_goes_on(beside):
    with pytest.raises(GoneError, match="reshape"):
        beside.compare(b"1", [np.ones(4, np.float32).tobytes()])
    assert 1 == len(beside.embed(["again"]))


def test_one_that_has_ended_is_gone_and_nothing_is_left_of_it(monkeypatch):
    monkeypatch.setattr(question_process, "_COMMAND", ("sh", "-c", "head -c 9; sleep 1000"))
    before = set(psutil.Process().children())
    question_process.begin()
    one = question_process.begun()
    (child,) = set(psutil.Process().children()) - before

    assert one is not None
    assert question_process.begun() is None
    child.kill()
    with pytest.raises(GoneError):
        one.embed(["x"])
    one.close()
    one.close()
    with pytest.raises(GoneError):
        one.embed(["x"])
    assert not psutil.pid_exists(child.pid)


def test_where_it_cannot_be_started_nobody_finds_it(monkeypatch, tmp_path):
    monkeypatch.setattr(question_process, "_COMMAND", (str(tmp_path / "no-such-program"),))
    question_process.begin()
    assert question_process.begun() is None


@given(st.data(), st.integers(1, 4), st.lists(st.integers(1, 99), unique=True, max_size=12), st.integers(1, 13))
def test_similarities_that_come_from_elsewhere_are_ordered_as_those_that_are_made_here(data, questions, chunks, limit):
    rows = [data.draw(st.lists(COSINES, min_size=questions, max_size=questions)) for _ in chunks]
    matrix = np.array(rows, np.float32).reshape(len(chunks), questions)
    here = NearestSimilarities(np.array(chunks, np.int64), matrix)

    there = ComparedSimilarities(chunks, matrix.tobytes(), questions)

    assert here.best(limit) == there.best(limit)
    assert here.of([*chunks[:3], 1, 100]) == there.of([*chunks[:3], 1, 100])


def test_only_the_passages_of_one_session_are_compared_elsewhere(tmp_path):
    store = SqliteStore(tmp_path / "index.db")
    store.use_model("m", 16)
    save(store, session_of("some text", "and more", "and that", cwd=str(tmp_path)))
    store.add_vectors([(row, vector_of(text).tobytes()) for row, text in store.waiting((), 9)])
    questions, one = [vector_of(text).tobytes() for text in "ab"], Scope((1,), session=1)
    here = store.similarities(questions, one).best(9)
    asked: list[int] = []

    def elsewhere(codes, given):
        asked.append(len(codes) // 16)
        return compared(codes, given)

    store.compare = elsewhere
    assert here == store.similarities(questions, one).best(9)
    assert here == store.similarities(questions, Scope((1,))).best(9)
    assert [len(here)] == asked
    store.compare = lambda *_: None
    assert here == store.similarities(questions, one).best(9)
    store.compare = lambda *_: os.urandom(4)
    with pytest.raises(ValueError, match="1 cosines do not match 2"):
        store.similarities(questions, one)
    store.close()
