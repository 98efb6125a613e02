"""sqlite-vec where it cannot be loaded, where its tables are damaged, and where vectors come from an older index."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import numpy as np
import pytest

import indexer
from indexer.failures import is_damage
from indexer.freshness import complete
from indexer.paths import index_db
from indexer.store import extension, groups, schema
from indexer.store.base import Scope
from indexer.store.queries import StoreReading
from indexer.store.schema import immediate
from indexer.store.soundness import read_only
from indexer.store.sqlite import SqliteStore
from smart_fork.agents import READERS
from tests.indexer.written import HashEmbedder, claude_log, content, save, session_of, stored_vectors, vector_of

ROOT = Path(indexer.__file__).parent.parent


@pytest.fixture
def store():
    store = SqliteStore(index_db())
    store.use_model("m", 16)
    yield store
    store.close()


def embed(store) -> None:
    store.add_vectors([(row, vector_of(text).tobytes()) for row, text in store.waiting((), 999)])


def nearest(store, text: str) -> list[int]:
    everything = store.scope(None, ("claude", "codex"), automated=True)
    return [hit.row for hit in store.similarities([vector_of(text).tobytes()], everything).best(9)]


# -- where it cannot be loaded


@pytest.fixture
def absent(monkeypatch, tmp_path):
    """While in it, connections that are opened find no file of sqlite-vec."""

    @contextmanager
    def absent():
        with monkeypatch.context() as patch:
            patch.setattr(extension, "loadable", lambda: tmp_path / "vec0")
            yield

    return absent


def test_it_is_loaded_without_its_python_module():
    script = (
        "import sys; from indexer.store.sqlite import SqliteStore; from pathlib import Path; "
        "store = SqliteStore(Path(sys.argv[1])); print(store.db.execute('SELECT vec_version()').get); "
        "print({'sqlite_vec', 'numpy'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", script, str(index_db())]
    version, loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert ("v0", "set()") == (version[:2], loaded)


def test_nothing_else_can_be_loaded_into_a_connection_afterwards(store):
    with pytest.raises(apsw.Error, match="not authorized"):
        store.db.execute("SELECT load_extension('vec0')")


def test_a_file_that_is_none_of_this_system_is_told_with_the_next_step(store, monkeypatch, tmp_path):
    (tmp_path / "vec0.so").write_bytes(b"of another processor")
    monkeypatch.setattr(extension, "loadable", lambda: tmp_path / "vec0.so")
    with closing(apsw.Connection(":memory:")) as db, pytest.raises(extension.VectorsUnavailableError) as told:
        extension.load(db)
    assert str(told.value).startswith("sqlite-vec cannot be loaded: ")
    assert "Reinstall" in told.value.hint


def test_a_package_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setattr(extension, "_PACKAGE", "sqlite_vec_of_nobody")
    with (
        closing(apsw.Connection(":memory:")) as db,
        pytest.raises(extension.VectorsUnavailableError, match="installed"),
    ):
        extension.load(db)


def test_without_it_words_are_found_sessions_are_kept_and_vectors_are_there_again_with_it(store, absent):
    save(store, session_of("the first text", "an answer"))
    embed(store)
    before = nearest(store, "User: the first text")
    with absent():
        without = SqliteStore(index_db())
        with pytest.raises(extension.VectorsUnavailableError):
            nearest(without, "x")
        with pytest.raises(extension.VectorsUnavailableError):
            without.use_model("m", 16)
        save(without, session_of("quokkas are marsupials", session_id="s2", root_id="other"))
        everything = without.scope(None, ("claude",), automated=False)
        assert 1 == len(without.match_words("chunks", ['"quokkas"'], everything, 9))
        counts = without.counts()
        assert (2, before, 1) == (
            counts.sessions,
            nearest(store, "User: the first text"),
            counts.chunks - counts.embedded,
        )
    assert before == nearest(without, "User: the first text")  # the same connection
    embed(without)
    assert without.counts().chunks == len(stored_vectors(without.db)) == without.counts().embedded
    assert [] == list(groups.faults(without.db))
    without.close()


def test_without_it_what_is_forgotten_is_in_no_byte_either(store, absent):
    for number in range(200):
        save(store, session_of(f"text {number}", session_id=f"s{number}", root_id=f"r{number}"))
    embed(store)
    (chunk,) = (place.chunk for place in store.placements_of(store.session("claude", "s7").row))
    vector = dict(stored_vectors(store.db))[chunk]
    store.close()
    assert vector in every_byte()
    with absent(), closing(SqliteStore(index_db())) as without:
        assert without.forget_session("claude", "s7")
        assert without.erase()
        assert 199 == without.counts().chunks
        assert 0 < without.counts().embedded < 199  # its whole group has gone
    assert vector not in every_byte()
    with closing(SqliteStore(index_db())) as again:
        assert [] == list(groups.faults(again.db))
        embed(again)
        assert 199 == again.counts().embedded == len(stored_vectors(again.db))


def every_byte() -> bytes:
    return b"".join(path.read_bytes() for path in index_db().parent.glob("index.db*"))


# -- what is taken out


def test_of_a_vector_that_is_taken_out_no_byte_is_left(store):
    for number in range(200):
        save(store, session_of(f"text {number}", session_id=f"s{number}", root_id=f"r{number}"))
    embed(store)
    of_session = {
        name: dict(stored_vectors(store.db))[store.placements_of(store.session("claude", name).row)[0].chunk]
        for name in ("s3", "s150", "s199")
    }
    save(store, session_of("something else", session_id="s3", root_id="r3"))  # cut
    assert store.forget_session("claude", "s150")
    store.owe_erasing()
    assert store.erase()

    said = every_byte()
    assert [False, False, True] == [of_session[name] in said for name in ("s3", "s150", "s199")]


def test_after_groups_have_gone_and_the_database_was_written_again_all_is_found(store):
    """VACUUM may give other numbers to the rows of a table; those of sqlite-vec's are places of vectors."""
    for number in range(600):
        save(store, session_of(f"text {number}", session_id=f"s{number}", root_id=f"r{number}"))
    embed(store)
    for number in range(600):
        if number not in {10, 300, 301, 550}:
            store.forget_session("claude", f"s{number}")
    assert store.erase()

    assert [] == list(groups.faults(store.db))
    for number in (10, 300, 301, 550):
        (place,) = store.placements_of(store.session("claude", f"s{number}").row)
        assert place.chunk == nearest(store, f"User: text {number}")[0]
    assert 1 == store.db.execute("SELECT count(*) FROM vectors_chunks").get


def test_an_index_that_is_only_read_is_searched(store):
    save(store, session_of("some text"))
    embed(store)
    with read_only(index_db()) as db:
        reading = StoreReading(db)
        assert [1] == nearest(reading, "x")
        assert [1] == [
            hit.row
            for hit in reading.similarities(
                [vector_of("x").tobytes()] * 2, reading.scope(None, ("claude",), automated=False)
            ).best(9)
        ]


# -- damage


HARMS = (
    "UPDATE vectors_chunks SET validity = x''",
    "UPDATE vectors_chunks SET rowids = x'00'",
    "UPDATE vectors_rowids SET chunk_offset = 5000",
    "DELETE FROM vectors_vector_chunks00",
    "UPDATE vectors_vector_chunks00 SET vectors = x'00'",
    "UPDATE vectors_vector_chunks00 SET vectors = 'text'",
    "DROP TABLE vectors_rowids",
    "DROP TABLE vectors_chunks",
    "DROP TABLE vectors_vector_chunks00",
)


@pytest.mark.parametrize("harm", HARMS)
def test_a_question_to_damaged_tables_tells_that_they_are(store, harm):
    save(store, session_of("some text"))
    embed(store)
    with closing(apsw.Connection(str(index_db()))) as db:
        db.execute(harm)
    everything = store.scope(None, ("claude",), automated=False)
    told = []
    for ask in (
        lambda: store.similarities([vector_of("x").tobytes()], everything).best(9),
        lambda: store.similarities([vector_of("x").tobytes()] * 2, everything).best(9),
        lambda: store.similarities([vector_of("x").tobytes()], Scope(everything.parts, session=1)).best(9),
        lambda: store.forget_session("claude", "s1"),
    ):
        try:
            ask()
        except Exception as error:  # noqa: BLE001 - what it is, is the question
            told.append(error)
    assert told
    assert [] == [error for error in told if not is_damage(error)]


def test_what_goes_wrong_without_damage_is_not_taken_for_it(store):
    save(store, session_of("some text"))
    embed(store)
    with pytest.raises(apsw.SQLError), groups.telling_damage(store.db):
        store.db.execute("SELECT * FROM nowhere")


# -- an index that has its vectors in blocks


def as_before(dimensions: int = 16, block: int = 100) -> dict[int, np.ndarray]:
    """Make the index one of the version before: vectors in blocks, each with the length of its steps; them by chunk."""
    with closing(SqliteStore(index_db())) as store:
        given = {chunk: np.frombuffer(code, np.int8).astype(np.float32) for chunk, code in stored_vectors(store.db)}
        parts = dict(store.db.execute("SELECT id, part FROM chunks").fetchall())
        record = np.dtype([("chunk", "<i8"), ("step", "<f4"), ("values", "i1", (dimensions,))])
        with immediate(store.db):
            store.db.execute("DROP TABLE vectors; DROP INDEX chunks_embedded; UPDATE chunks SET block = 0")
            store.db.execute(
                "CREATE TABLE vector_blocks(id INTEGER PRIMARY KEY, part INTEGER NOT NULL, records BLOB NOT NULL)"
            )
            store.db.execute("CREATE INDEX vector_blocks_part ON vector_blocks(part)")
            for part in sorted(set(parts.values())):
                chunks = sorted(chunk for chunk in given if parts[chunk] == part)
                for start in range(0, len(chunks), block):
                    some = chunks[start : start + block]
                    records = np.zeros(len(some), record)
                    records["chunk"] = some
                    for row, chunk in enumerate(some):
                        steps = np.rint(given[chunk] * 127 / np.abs(given[chunk]).max())
                        records[row]["step"], records[row]["values"] = 1 / np.linalg.norm(steps), steps
                    store.db.execute("INSERT INTO vector_blocks(part, records) VALUES(?, ?)", (part, records.tobytes()))
                    number = store.db.last_insert_rowid()
                    store.db.executemany(
                        "UPDATE chunks SET block = ? WHERE id = ?", [(number, chunk) for chunk in some]
                    )
            store.db.execute("ALTER TABLE sessions DROP COLUMN also_called")  # what came later
            store.db.execute(
                f"PRAGMA user_version = {schema.MIGRATIONS.index(schema.m007_sqlite_vec_keeps_the_vectors)}"
            )
    return given


def filled(sessions: int = 300) -> None:
    with closing(SqliteStore(index_db())) as store:
        store.use_model("m", 16)
        for number in range(sessions):
            save(
                store,
                session_of(f"text {number}", session_id=f"s{number}", root_id=f"r{number}", cwd=f"/p{number % 3}"),
            )
        embed(store)


def directions(store) -> dict[int, np.ndarray]:
    codes = {chunk: np.frombuffer(code, np.int8).astype(np.float32) for chunk, code in stored_vectors(store.db)}
    return {chunk: code / np.linalg.norm(code) for chunk, code in codes.items()}


def all_moved(given) -> bool:
    with closing(SqliteStore(index_db())) as store:
        assert [] == list(groups.faults(store.db))
        assert not groups.in_blocks(store.db)
        assert ([], len(given)) == (store.waiting((), 9), store.counts().embedded)
        moved = directions(store)
    return moved.keys() == given.keys() and all(
        moved[chunk] @ vector / np.linalg.norm(vector) > 0.999 for chunk, vector in given.items()
    )


def test_vectors_in_blocks_are_moved(monkeypatch):
    filled()
    given = as_before()

    assert all_moved(given)


def test_of_a_block_only_what_a_passage_has_is_moved():
    filled(10)
    given = as_before()
    with closing(apsw.Connection(str(index_db()))) as db:
        db.execute("UPDATE chunks SET block = 0 WHERE id = 3; UPDATE chunks SET part = 2 WHERE id = 4")
    with closing(SqliteStore(index_db())) as store:
        assert given.keys() - {3, 4} <= directions(store).keys()
        assert 3 not in directions(store)


def test_until_it_can_be_loaded_blocks_stay_and_what_is_forgotten_goes_from_them(absent):
    filled(30)
    as_before(block=5)
    with absent(), closing(SqliteStore(index_db())) as without:
        assert groups.in_blocks(without.db)
        assert 30 == without.counts().embedded
        assert without.forget_session("claude", "s0")
        assert without.erase()
        assert (29, 25) == (without.counts().chunks, without.counts().embedded)
    with closing(SqliteStore(index_db())) as store:
        assert 25 == store.counts().embedded == len(stored_vectors(store.db))
        assert [] == list(groups.faults(store.db))
        embed(store)
        assert 29 == store.counts().embedded


MOVE = """
import os, signal, sys
from indexer.paths import index_db
from indexer.store import vectors
from indexer.store.sqlite import SqliteStore
moments, last = 0, int(sys.argv[1])
real = vectors.append
def append(db, part, given):
    global moments
    for chunk, vector in given.items():
        moments += 1
        if moments == last:
            os.kill(os.getpid(), signal.SIGKILL)
        real(db, part, {chunk: vector})
vectors.append = append
SqliteStore(index_db()).close()
print(moments)
"""


@pytest.mark.parametrize("last", [1, 150, 300])
def test_a_kill_in_the_middle_of_moving_loses_nothing(last):
    filled()
    given = as_before()
    run = [sys.executable, "-c", MOVE]
    killed = subprocess.run([*run, str(last)], cwd=ROOT, capture_output=True, check=False)
    assert -signal.SIGKILL == killed.returncode, killed.stderr
    with closing(apsw.Connection(str(index_db()))) as db:
        assert 3 == db.execute("SELECT count(*) FROM vector_blocks").get

    assert all_moved(given)


def test_two_that_open_an_older_index_at_once_move_it_once():
    filled(60)
    given = as_before(block=7)
    run = [sys.executable, "-c", MOVE, "-1"]
    both = [subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    moved = sorted(int(one.communicate()[0]) for one in both)

    assert [0, 0] == [one.returncode for one in both]
    assert [0, 60] == moved
    assert all_moved(given)


def test_an_older_index_is_completed_as_one_that_was_always_new(monkeypatch, tmp_path):
    logs = [
        claude_log(f"{n:08}-1111-4111-8111-111111111111", "/work/a", f"question {n}", "an answer") for n in range(9)
    ]
    with closing(SqliteStore(index_db())) as store:
        complete(store, READERS, HashEmbedder(), patience=0)
    expected = content(index_db())
    as_before()
    with closing(SqliteStore(index_db())) as store:
        complete(store, READERS, HashEmbedder(), patience=0)
    actual = content(index_db())

    assert len(logs) == len(expected["sessions"])
    assert expected.pop("vectors").keys() == actual.pop("vectors").keys()
    assert expected == actual
