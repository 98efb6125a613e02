"""Files that an older or a newer version of smart-fork has written."""

from __future__ import annotations

import gzip
from contextlib import closing

import apsw
import orjson
import pytest

from indexer import state_db
from indexer.refresh import complete
from indexer.safe_files import index_db, state_home
from indexer.store.damage import open_sound
from indexer.store.schema import FORM, NewerIndexError
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import HashEmbedder, claude_log, content

ONE, TWO = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
SECRET = "kX7mQ2zanzibarW9pL4"
#: What takes the tables of this form back to an older one.
BACK = {
    20: "ALTER TABLE sessions DROP COLUMN headline",
    19: """INSERT INTO chunk_words(chunk_words) VALUES('delete-all');
        INSERT INTO chunk_words(rowid, part, text) SELECT id, 'p' || part, text FROM chunks""",
    16: "; ".join(
        f"ALTER TABLE sessions DROP COLUMN {one}" for one in ("resumed", "resumed_reason", "forgotten", "instructions")
    ),
    15: "ALTER TABLE files DROP COLUMN masked",
    14: "DROP TABLE errors",
    13: "ALTER TABLE sessions DROP COLUMN cache_seconds; ALTER TABLE sessions DROP COLUMN cache_used",
    12: "DROP TABLE authored; DELETE FROM meta WHERE key = 'key'",
    11: "ALTER TABLE files DROP COLUMN records; ALTER TABLE files DROP COLUMN unknown",
    9: "DROP TABLE session_work",
    8: "ALTER TABLE sessions DROP COLUMN answered",
}
ROW_OF_15 = """
    INSERT OR REPLACE INTO files SELECT path, agent, size, mtime_ns, inode, version, offset, lines, probe, state,
        session, rank, skipped, broken, broken_lines, records, unknown FROM files
"""


@pytest.fixture(autouse=True)
def _logs(home):
    claude_log(ONE, "/work/a", f"mend the parser with postgres://app:{SECRET}@db/shop", "done")
    claude_log(TWO, "/work/a", "count the quokkas", "seven")


def run(embedder: HashEmbedder | None = None) -> dict:
    with open_sound(index_db()) as store:
        complete(store, READERS, embedder, patience=0.0)
    return {name: value for name, value in content(index_db()).items() if name != "vectors"}


def age(form: int) -> None:
    """Turn the index into one of an older version, with unmasked text in the state of its reader."""
    with closing(apsw.Connection(str(index_db()))) as db:
        said = gzip.compress(orjson.dumps([21, {}]) + b"\n" + orjson.dumps(f"postgres://app:{SECRET}@db/shop"))
        db.execute("UPDATE files SET state = ?, version = '21.5.14.2'", (said,))
        for since in (since for since in BACK if since >= form):
            db.execute(BACK[since])
        db.execute(f"PRAGMA user_version = {form}")


def with_secret() -> list[str]:
    """Return the files that have the secret, also in packed form."""
    found = [one.name for one in state_home().rglob("*") if one.is_file() and SECRET.encode() in one.read_bytes()]
    with closing(apsw.Connection(str(index_db()), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        packed = [gzip.decompress(one) for (one,) in db.execute("SELECT state FROM files") if one]
    return found + ["packed" for one in packed if SECRET.encode() in one]


@pytest.mark.parametrize("form", [*BACK, 10])
def test_an_index_of_an_older_form_is_brought_up_to_date_and_keeps_its_vectors(form):
    fresh = run(HashEmbedder())
    age(form)
    assert with_secret()
    embedder = HashEmbedder()

    assert fresh == run(embedder)
    assert [] == embedder.embedded
    assert [] == with_secret()
    assert not list(state_home().glob("index.db.*"))


def test_passages_of_an_older_form_are_found_by_words_inside_a_run():
    claude_log(ONE, "/work/a", "登录页面的验证码刷新失败", "done")
    run()
    age(19)

    with open_sound(index_db()) as store:
        scope = store.scope(None, READERS.names, automated=True)
        (place,) = store.placements([hit.row for hit in store.match_words("chunks", ['"验证"'], scope, 9)])
        assert {ONE} == {row.session_id for row in store.sessions([place.session]).values()}
        store.forget_session("claude", ONE)
        assert [] == store.match_words("chunks", ['"验证"'], scope, 9)


def test_a_session_whose_log_is_gone_stays_in_an_index_of_an_older_form():
    log = claude_log(TWO, "/work/a", "count the quokkas", "seven")
    run()
    log.unlink()
    run()
    age(11)

    with open_sound(index_db()) as store:
        assert {ONE, TWO} == {row.session_id for row in store.find_sessions("")}


def test_an_index_that_is_too_old_is_built_again_and_the_old_one_goes_when_all_is_read():
    fresh = run()
    age(8)
    with closing(apsw.Connection(str(index_db()))) as db:
        db.execute("PRAGMA user_version = 5")

    with open_sound(index_db()) as store:
        assert list(state_home().glob("index.db.outdated-*"))
        complete(store, READERS, None, patience=0.0)
    assert fresh["exports"] == content(index_db())["exports"]
    assert fresh["words"] == content(index_db())["words"]
    assert [] == with_secret()
    assert not list(state_home().glob("index.db.*"))


def test_an_index_of_the_number_of_an_older_form_that_has_other_tables_is_built_again():
    fresh = run()
    with closing(apsw.Connection(str(index_db()))) as db:
        db.execute("ALTER TABLE files RENAME TO logs; PRAGMA user_version = 14")

    assert fresh == run()


def test_an_index_of_a_newer_form_is_left_alone():
    run()
    with closing(apsw.Connection(str(index_db()))) as db:
        db.execute(f"PRAGMA user_version = {FORM + 1}")
    before = index_db().read_bytes()

    with pytest.raises(NewerIndexError, match="a newer smart-fork wrote the index"), open_sound(index_db()):
        pass
    assert before == index_db().read_bytes()
    assert not list(state_home().glob("index.db.*"))


def test_a_program_of_an_older_form_that_has_the_index_open_cannot_write_its_rows_any_more():
    run()
    age(15)
    with closing(apsw.Connection(str(index_db()))) as older:
        older.execute(ROW_OF_15)
        run()

        with pytest.raises(apsw.SQLError, match="18 columns but 17 values"):
            older.execute(ROW_OF_15)


def age_state(changes: str) -> None:
    with closing(apsw.Connection(str(state_db.path()))) as db:
        db.execute(f"{changes}; PRAGMA application_id = 0")


def test_a_state_database_of_an_older_form_keeps_what_it_has_and_gets_the_rest():
    state_db.change("INSERT INTO forgotten VALUES ('claude', ?, '2026-11-26')", ONE)
    state_db.change("INSERT INTO repositories VALUES ('/work/a', 'k', '[]', 'r', 'h', 'l', 'p', 0, 'c', 'm')")
    age_state(
        "DROP TABLE verdicts; DROP TABLE marks; DROP TABLE pulled; ALTER TABLE repositories DROP COLUMN made;"
        "CREATE TABLE pulled (id TEXT PRIMARY KEY, path TEXT NOT NULL, agent TEXT NOT NULL, root TEXT NOT NULL,"
        " server TEXT NOT NULL, project TEXT NOT NULL, records TEXT NOT NULL, sessions TEXT NOT NULL,"
        " crossed_from TEXT NOT NULL, crossed TEXT NOT NULL, edits TEXT, says TEXT, count_before INTEGER) WITHOUT ROWID;"
        """INSERT INTO pulled VALUES ('i', '/p', 'claude', '/r', 's', 'j', '[["d", "k"]]', '["t"]', '[]', '[]',"""
        " NULL, NULL, 3)"
    )

    assert [] == state_db.rows("SELECT * FROM verdicts")
    assert [(ONE,)] == state_db.rows("SELECT session_id FROM forgotten")
    assert [("k", "")] == state_db.rows("SELECT key, made FROM repositories")
    ((written, before),) = state_db.rows("SELECT written, count_before FROM pulled")
    assert (["d", "k"], "/p", 3) == (orjson.loads(written)["records"][0], orjson.loads(written)["path"], before)


def test_what_was_forgotten_and_handed_over_before_there_was_a_state_database_is_known():
    (state_home() / "handovers").mkdir(parents=True)
    (state_home() / "forgotten.jsonl").write_text(f'["claude", "{ONE}", "2026-11-24"]\nbroken\n')
    note = {"agent": "codex", "source_agent": "claude", "source_session_id": ONE, "through": "m1", "others": []}
    (state_home() / "handovers" / TWO).write_bytes(orjson.dumps(note))
    (state_home() / "handovers" / "odd").write_text("[]")
    run()

    with open_sound(index_db()) as store:
        assert [TWO] == [row.session_id for row in store.find_sessions("")]
    assert [(TWO, 0, "codex", "claude", ONE, "m1")] == state_db.rows("SELECT * FROM handovers")
