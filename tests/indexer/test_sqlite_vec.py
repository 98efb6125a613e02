"""sqlite-vec that cannot be loaded, and damage to its tables."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

import indexer
from indexer.errors import is_damage
from indexer.safe_files import index_db
from indexer.store import schema, vectors
from indexer.store.base import Scope
from indexer.store.damage import read_only
from indexer.store.queries import StoreReading
from indexer.store.sqlite import Store
from tests.indexer.index_inputs import save, session_of, stored_vectors, vector_of

ROOT = Path(indexer.__file__).parent.parent


@pytest.fixture
def store():
    store = Store(index_db())
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
    """Let connections that are opened find no file of sqlite-vec."""

    @contextmanager
    def absent():
        with monkeypatch.context() as patch:
            patch.setattr(schema, "extension_path", lambda: tmp_path / "vec0")
            yield

    return absent


def test_it_is_loaded_without_its_python_module():
    script = (
        "import sys; from indexer.store.sqlite import Store; from pathlib import Path; "
        "store = Store(Path(sys.argv[1])); print(store.db.execute('SELECT vec_version()').get); "
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
    monkeypatch.setattr(schema, "extension_path", lambda: tmp_path / "vec0.so")
    with closing(apsw.Connection(":memory:")) as db, pytest.raises(schema.VectorsUnavailableError) as told:
        schema.load_vectors(db)
    assert str(told.value).startswith("sqlite-vec cannot be loaded: ")
    assert "Reinstall" in told.value.hint


def test_a_package_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setattr(schema, "_PACKAGE", "sqlite_vec_of_nobody")
    with (
        closing(apsw.Connection(":memory:")) as db,
        pytest.raises(schema.VectorsUnavailableError, match="installed"),
    ):
        schema.load_vectors(db)


def test_without_it_words_are_found_sessions_are_kept_and_vectors_are_there_again_with_it(store, absent):
    save(store, session_of("the first text", "an answer"))
    embed(store)
    before = nearest(store, "User: the first text")
    with absent():
        without = Store(index_db())
        with pytest.raises(schema.VectorsUnavailableError):
            nearest(without, "x")
        with pytest.raises(schema.VectorsUnavailableError):
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
    assert [] == list(vectors.faults(without.db))
    without.close()


@pytest.mark.slow
def test_without_it_what_is_forgotten_is_in_no_byte_either(store, absent):
    for number in range(200):
        save(store, session_of(f"text {number}", session_id=f"s{number}", root_id=f"r{number}"))
    embed(store)
    (chunk,) = (place.chunk for place in store.placements_of(store.session("claude", "s7").row))
    vector = dict(stored_vectors(store.db))[chunk]
    store.close()
    assert vector in every_byte()
    with absent(), closing(Store(index_db())) as without:
        assert without.forget_session("claude", "s7")
        assert without.erase()
        assert 199 == without.counts().chunks
        assert 0 < without.counts().embedded < 199  # its whole group has gone
    assert vector not in every_byte()
    with closing(Store(index_db())) as again:
        assert [] == list(vectors.faults(again.db))
        embed(again)
        assert 199 == again.counts().embedded == len(stored_vectors(again.db))


def every_byte() -> bytes:
    return b"".join(path.read_bytes() for path in index_db().parent.glob("index.db*"))


# -- what is taken out


@pytest.mark.slow
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


@pytest.mark.thorough
def test_after_groups_have_gone_and_the_database_was_written_again_all_is_found(store):
    """VACUUM may renumber the rows of a table. The row numbers of sqlite-vec are places of vectors."""
    for number in range(600):
        save(store, session_of(f"text {number}", session_id=f"s{number}", root_id=f"r{number}"))
    embed(store)
    for number in range(600):
        if number not in {10, 300, 301, 550}:
            store.forget_session("claude", f"s{number}")
    assert store.erase()

    assert [] == list(vectors.faults(store.db))
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
    with pytest.raises(apsw.SQLError), vectors.telling_damage(store.db):
        store.db.execute("SELECT * FROM nowhere")
