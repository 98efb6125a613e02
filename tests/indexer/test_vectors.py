"""Vectors in sqlite-vec: precision, search, and that none is lost or left."""

import os
import subprocess
import sys

import numpy as np
import pytest

from indexer.sqlite_tools import write_transaction
from indexer.store import vectors
from indexer.store.base import Scope
from indexer.store.sqlite import Store
from indexer.store.vectors import faults
from tests.indexer.index_inputs import crowd, save, session_of, stored_vectors, vector_of


@pytest.fixture
def bare(tmp_path):
    store = Store(tmp_path / "index.db")
    yield store
    store.close()


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "index.db")
    store.use_model("m", 16)
    yield store
    store.close()


def keep(store, vectors) -> None:
    """Store one chunk of part 1 for each vector, numbered from 1."""
    store.use_model("m", len(vectors[0]))
    with write_transaction(store.db):
        store.db.execute("INSERT INTO projects VALUES(1, '/p', '/p'); INSERT INTO parts VALUES(1, 1, 'claude', 0)")
        for row in range(1, len(vectors) + 1):
            store.db.execute("INSERT INTO chunks VALUES(?, 1, ?, 'text', 0)", (row, b"%d" % row))
    store.add_vectors([(row, np.asarray(vector, np.float32).tobytes()) for row, vector in enumerate(vectors, 1)])


def near(store, query, limit: int) -> list:
    found = store.similarities([np.asarray(query, np.float32).tobytes()], Scope((1,))).best(limit)
    return [(hit.row, hit.score) for hit in found]


@pytest.mark.parametrize("dimensions", [1, 3, 384, 1024])
def test_a_vector_keeps_its_direction_whatever_its_length(bare, dimensions):
    vectors = np.random.default_rng(1).normal(size=(200, dimensions)).astype(np.float32)
    vectors[::2] *= 1000
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    keep(bare, vectors)
    for query in unit[:20]:
        found = dict(near(bare, query * 7, 200))
        assert np.allclose([found[row] for row in range(1, 201)], unit @ query, atol=0.01)


def test_a_vector_of_nothing_or_of_no_numbers_is_near_nothing(bare):
    keep(bare, [np.zeros(4), [np.nan, 0, 0, 0], [1, 0, 0, 0]])

    assert [(3, 1.0), (1, 0.0), (2, 0.0)] == near(bare, [1, 0, 0, 0], 9)
    assert {0.0} == {score for _, score in near(bare, np.zeros(4), 9)}
    assert 0 == bare.add_vectors([])
    assert [] == bare.similarities([np.ones(4, np.float32).tobytes()], Scope((99,))).best(9)


@pytest.mark.thorough
def test_of_fifty_nearest_in_full_precision_hardly_one_is_missed(bare):
    random = np.random.default_rng(2)
    topics = random.normal(size=(40, 384))
    vectors = topics[random.integers(0, 40, 4000)] + random.normal(size=(4000, 384))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    keep(bare, vectors)
    shared = []
    for query in vectors[:50]:
        best = set((1 + np.argsort(-(vectors @ query))[:50]).tolist())
        shared.append(len(best & {row for row, _ in near(bare, query, 50)}) / 50)

    assert np.mean(shared) >= 0.99


def test_equals_come_in_the_order_of_their_numbers_wherever_they_stand(bare):
    keep(bare, [[1, 0]] * 300)

    assert [1, 2, 3] == [row for row, _ in near(bare, [1, 0], 3)]


def test_of_questions_that_are_asked_at_once_each_has_its_nearest_chunks(store):
    matrix = crowd(store, parts=3, rows=300)
    everything = store.scope(None, ("claude",), automated=False)
    questions = [matrix[row].tobytes() for row in (0, 7)]
    alone = [store.similarities([question], everything).best(5) for question in questions]

    together = store.similarities(questions, everything)
    hits = together.best(5)

    assert {hit.row for hits in alone for hit in hits} == {hit.row for hit in hits}
    assert sorted((hit.score for hit in hits), reverse=True) == [hit.score for hit in hits]
    of_row = {hit.row: hit.cosines for hit in hits}
    for number, found in enumerate(alone):
        assert [hit.score for hit in found] == pytest.approx([of_row[hit.row][number] for hit in found], abs=1e-6)
    assert of_row == together.of(of_row)


def test_several_questions_are_answered_as_each_by_itself(store, tmp_path):
    save(store, session_of("some text", "and more", cwd=str(tmp_path)))
    store.add_vectors([(row, vector_of(text).tobytes()) for row, text in store.waiting((), 9)])
    crowd(store, parts=7, rows=3000)
    questions = [vector_of(text).tobytes() for text in "abcde"]
    of_two, rows = Scope((1001, 1003)), [1, 2, *range(10_000, 10_700, 7), 999_999]
    for scope in (
        store.scope(None, ("claude",), automated=False),
        of_two,
        Scope((1,), session=1),
        Scope((), session=9),
    ):
        together = store.similarities(questions, scope)
        of_row, best = together.of(rows), {hit.row: hit.cosines for hit in together.best(40)}
        for number, question in enumerate(questions):
            alone = store.similarities([question], scope)
            assert {row: one[number] for row, one in of_row.items()} == pytest.approx(
                {row: one for row, (one,) in alone.of(rows).items()}, abs=1e-5
            )
            for hit in alone.best(40):
                assert best[hit.row][number] == pytest.approx(hit.score, abs=1e-5)
    assert {1001, 1003} == {
        1000 + (hit.row - 10_000) % 7 for hit in store.similarities(questions[:1], of_two).best(900)
    }
    assert [] == store.similarities([], of_two).best(9)


def test_as_many_are_found_as_are_asked_for(store):
    crowd(store, parts=3, rows=5000)
    near = store.similarities([vector_of("x").tobytes()], store.scope(None, ("claude",), automated=False))

    assert [400, 4000, 4500, 5000] == [len(near.best(limit)) for limit in (400, 4000, 4500, 9000)]


def test_parts_that_are_left_out_take_no_place(store):
    matrix = crowd(store, parts=50, rows=3000)
    query = matrix[0]
    left_out = 1000 + np.argsort(-(matrix @ query))[:20] % 50
    parts = tuple(part for part in range(1000, 1050) if part not in left_out)
    hits = store.similarities([query.tobytes()], Scope(parts)).best(30)
    expected = [row for row in np.argsort(-(matrix @ query)).tolist() if 1000 + row % 50 in parts]

    assert 30 == len(hits)
    assert {1000 + (hit.row - 10_000) % 50 for hit in hits} <= set(parts)
    assert 28 <= len({hit.row - 10_000 for hit in hits} & set(expected[:30]))


def groups(store) -> list:
    """Return the part of each group, and its number of vectors."""
    rows = store.db.execute("SELECT partition00, validity FROM vectors_chunks ORDER BY 1, chunk_id")
    return [(part, len(list(vectors.slots_of(used)))) for part, used in rows]


def test_groups_that_have_become_half_empty_are_filled_up(store):
    crowd(store, parts=2, rows=600)
    assert [(1000, 128), (1000, 128), (1000, 44), (1001, 128), (1001, 128), (1001, 44)] == groups(store)
    before = dict(stored_vectors(store.db))

    gone = list(range(10_000, 10_130))  # 65 of each part
    let_go(store, gone)
    assert [(1000, 128), (1000, 107), (1001, 128), (1001, 107)] == groups(store)
    assert {row: before[row] for row in range(10_130, 10_600)} == dict(stored_vectors(store.db))
    assert 470 == store.counts().embedded
    assert [] == list(faults(store.db))
    assert 130 == store.add_vectors([(row, vector_of(str(row)).tobytes()) for row in gone])
    assert set(range(10_000, 10_600)) == dict(stored_vectors(store.db)).keys()


@pytest.mark.thorough
def test_a_session_that_grows_for_ever_takes_no_more_room_than_its_vectors(store):
    for last in range(400):
        save(store, session_of("first", f"number {last}"))
        store.add_vectors([(row, vector_of(text).tobytes()) for row, text in store.waiting((), 9)])

    assert [1] == [number for _, number in groups(store)]


def let_go(store, rows) -> None:
    with write_transaction(store.db):
        vectors.remove(store.db, rows)
        store.db.executemany("UPDATE chunks SET block = 0 WHERE id = ?", [(row,) for row in rows])


def test_an_empty_group_goes(store):
    save(store, session_of("some text"))
    ((row, text),) = store.waiting((), 9)
    store.add_vectors([(row, vector_of(text).tobytes())])
    save(store, session_of("other text"))

    assert [] == groups(store) == stored_vectors(store.db)
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

    with pytest.raises(ValueError, match="not from the model"):
        store.add_vectors([(row, vector_of("x", 10).tobytes())])
    with pytest.raises(ValueError, match="16 dimensions"):
        store.similarities([vector_of("x", 10).tobytes()], Scope((1000,)))
    assert 11 == len(stored_vectors(store.db))


@pytest.mark.slow
def test_programs_that_are_started_do_not_inherit_the_number_of_threads():
    script = "import os, indexer.one_thread_numpy; print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    without = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    for environment, kept in ((without, "None"), (without | {"OPENBLAS_NUM_THREADS": "3"}, "3")):
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert kept == done.stdout.strip()
