"""Vectors as bytes in blocks: how near they stay to what they were, and that blocks keep what they are given."""

import os
import subprocess
import sys

import numpy as np
import pytest

from indexer.store import blocks
from indexer.store.base import Scope
from indexer.store.scan import Similarities, coded
from indexer.store.sqlite import SqliteStore
from tests.indexer.written import crowd, save, session_of, stored_vectors, vector_of


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(tmp_path / "index.db")
    store.use_model("m", 16)
    yield store
    store.close()


def block(vectors) -> bytes:
    codes = coded([np.asarray(vector, np.float32).tobytes() for vector in vectors])
    return b"".join(number.to_bytes(8, "little") + code for number, code in enumerate(codes))


@pytest.mark.parametrize("dimensions", [1, 3, 384, 1024])
def test_a_vector_keeps_its_direction_whatever_its_length(dimensions):
    vectors = np.random.default_rng(1).normal(size=(200, dimensions)).astype(np.float32)
    vectors[::2] *= 1000
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for query in unit[:20]:
        found = dict(Similarities.scanned([block(vectors)], (query * 7).tobytes()).best(200))
        assert np.allclose([found[row] for row in range(200)], unit @ query, atol=0.01)


def test_a_vector_of_nothing_or_of_no_numbers_is_near_nothing():
    stored = [block([np.zeros(4), [np.nan, 0, 0, 0], [1, 0, 0, 0]])]

    assert [(2, 1.0), (0, 0.0), (1, 0.0)] == Similarities.scanned(
        stored, np.array([1, 0, 0, 0], np.float32).tobytes()
    ).best(9)
    assert {0.0} == {score for _, score in Similarities.scanned(stored, np.zeros(4, np.float32).tobytes()).best(9)}
    assert [] == coded([]) == Similarities.scanned([], np.ones(4, np.float32).tobytes()).best(9)


def test_of_fifty_nearest_in_full_precision_hardly_one_is_missed():
    random = np.random.default_rng(2)
    topics = random.normal(size=(40, 384))
    vectors = topics[random.integers(0, 40, 4000)] + random.normal(size=(4000, 384))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    stored, shared = [block(vectors)], []
    for query in vectors[:50]:
        best = set(np.argsort(-(vectors @ query))[:50].tolist())
        shared.append(len(best & {row for row, _ in Similarities.scanned(stored, query.tobytes()).best(50)}) / 50)

    assert np.mean(shared) >= 0.98


def test_equals_come_in_the_order_of_their_numbers_wherever_they_stand():
    same = block([[1, 0]] * 4)
    records = [same[start : start + len(same) // 4] for start in range(0, len(same), len(same) // 4)]
    query = np.array([1, 0], np.float32).tobytes()

    assert [0, 1, 2] == [row for row, _ in Similarities.scanned(reversed(records), query).best(3)]


def test_as_many_are_found_as_are_asked_for(store):
    crowd(store, parts=3, rows=5000)
    everything = store.scope(None, ("claude",), automated=False)

    assert 4500 == len(store.similarities(vector_of("x").tobytes(), everything).best(4500))


def test_parts_that_are_left_out_take_no_place(store):
    matrix = crowd(store, parts=50, rows=3000)
    query = matrix[0]
    left_out = 1000 + np.argsort(-(matrix @ query))[:20] % 50
    parts = tuple(part for part in range(1000, 1050) if part not in left_out)
    hits = store.similarities(query.tobytes(), Scope(parts)).best(30)
    expected = [row for row in np.argsort(-(matrix @ query)).tolist() if 1000 + row % 50 in parts]

    assert 30 == len(hits)
    assert {1000 + (hit.row - 10_000) % 50 for hit in hits} <= set(parts)
    assert 28 <= len({hit.row - 10_000 for hit in hits} & set(expected[:30]))


def test_blocks_are_filled_before_new_ones_are_begun(store, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 100)
    crowd(store, parts=2, rows=250)
    first = store.db.execute("SELECT part, length(records) / 28 FROM vector_blocks ORDER BY id").fetchall()
    assert [(1000, 100), (1000, 25), (1001, 100), (1001, 25)] == first

    rows = list(range(10_000, 10_060))  # of both parts
    blocks.remove(store.db, rows)
    store.db.executemany("UPDATE chunks SET block = 0 WHERE id = ?", [(row,) for row in rows])
    assert 190 == len(stored_vectors(store.db)) == store.counts().embedded
    assert 60 == store.add_vectors([(row, vector_of(str(row)).tobytes()) for row in rows])
    assert 4 == store.db.execute("SELECT count(*) FROM vector_blocks").get
    assert set(range(10_000, 10_250)) == {row for row, _ in stored_vectors(store.db)}
    assert [] == store.db.execute("SELECT id FROM chunks WHERE block NOT IN (SELECT id FROM vector_blocks)").fetchall()


def test_an_empty_block_goes(store):
    save(store, session_of("some text"))
    ((row, text),) = store.waiting((), 9)
    store.add_vectors([(row, vector_of(text).tobytes())])
    save(store, session_of("other text"))

    assert 0 == store.db.execute("SELECT count(*) FROM vector_blocks").get
    assert (1, 0) == (store.counts().chunks, store.counts().embedded)


def test_two_new_chunks_of_one_text_get_one_vector_each(store, tmp_path):
    for name in ("here", "there"):
        save(store, session_of("shared", cwd=str(tmp_path / name), session_id=name))
    vector = vector_of("shared").tobytes()

    assert 2 == store.add_vectors([(row, vector) for row, _ in store.waiting((), 9)])
    assert 2 == len(stored_vectors(store.db))


def test_vectors_of_another_length_are_neither_kept_nor_compared(store):
    crowd(store, parts=1, rows=11)  # as many bytes as 14 vectors of 10 dimensions
    save(store, session_of("some text"))
    ((row, _),) = store.waiting((), 9)

    with pytest.raises(ValueError, match="no vectors of the model"):
        store.add_vectors([(row, vector_of("x", 10).tobytes())])
    with pytest.raises(ValueError, match="16 dimensions"):
        store.similarities(vector_of("x", 10).tobytes(), Scope((1000,)))
    assert 11 == len(stored_vectors(store.db))


def test_programs_that_are_started_do_not_inherit_the_number_of_threads():
    script = "import os, indexer.arrays; print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    without = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    for environment, kept in ((without, "None"), (without | {"OPENBLAS_NUM_THREADS": "3"}, "3")):
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert kept == done.stdout.strip()
