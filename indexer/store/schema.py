"""The index's tables, as numbered steps, each run and recorded in one transaction. A released step never changes."""

from __future__ import annotations

import apsw

from indexer.errors import IndexerError

#: How words are cut: stemmed, case and accents folded; ``_`` and ``.`` separate, so parts of identifiers are found.
TOKENIZER = "porter unicode61 remove_diacritics 2"


def m001_sessions_and_chunks(db: apsw.Connection) -> None:
    """Logs, sessions, their chunks and the two word indexes."""
    db.execute(
        f"""
        CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

        CREATE TABLE projects(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, root TEXT NOT NULL);

        -- What a search is restricted to before any cut: a project, an agent, and whether a person started it.
        CREATE TABLE parts(
            id INTEGER PRIMARY KEY, project INTEGER NOT NULL REFERENCES projects(id),
            agent TEXT NOT NULL, automated INTEGER NOT NULL, UNIQUE(project, agent, automated)
        );

        CREATE TABLE sessions(
            id INTEGER PRIMARY KEY,
            agent TEXT NOT NULL, session_id TEXT NOT NULL,
            part INTEGER NOT NULL REFERENCES parts(id),
            path TEXT NOT NULL,            -- the log; empty when the agent has deleted it
            cwd TEXT NOT NULL, resolved_cwd TEXT NOT NULL, repo_root TEXT NOT NULL, git_branch TEXT NOT NULL,
            title TEXT NOT NULL, version TEXT NOT NULL,
            started TEXT NOT NULL, last_activity TEXT NOT NULL,
            origin TEXT NOT NULL, parent_id TEXT, root_id TEXT NOT NULL,
            turns INTEGER NOT NULL, prompts INTEGER NOT NULL, tokens INTEGER NOT NULL, compactions INTEGER NOT NULL,
            UNIQUE(agent, session_id)
        );
        CREATE INDEX sessions_family ON sessions(root_id);
        CREATE INDEX sessions_part ON sessions(part, last_activity);
        CREATE INDEX sessions_cwd ON sessions(resolved_cwd);

        -- One row a log: what it was when it was read, and where reading goes on.
        CREATE TABLE files(
            path TEXT PRIMARY KEY, agent TEXT NOT NULL,
            size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, inode INTEGER NOT NULL,
            version TEXT NOT NULL,         -- of the reader, the chunker and the masking
            offset INTEGER NOT NULL, lines INTEGER NOT NULL, probe TEXT NOT NULL, state BLOB NOT NULL,
            session INTEGER REFERENCES sessions(id), rank TEXT NOT NULL,
            skipped TEXT NOT NULL, broken INTEGER NOT NULL, broken_lines TEXT NOT NULL
        );
        CREATE INDEX files_session ON files(session);

        CREATE TABLE chunks(
            -- Never given twice: a vector that is being computed must not land on another text.
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            part INTEGER NOT NULL REFERENCES parts(id), hash BLOB NOT NULL, text TEXT NOT NULL,
            embedded INTEGER NOT NULL DEFAULT 0,
            UNIQUE(hash, part)
        );
        CREATE INDEX chunks_waiting ON chunks(part) WHERE embedded = 0;
        CREATE INDEX chunks_embedded ON chunks(part, embedded);

        CREATE TABLE placements(
            session INTEGER NOT NULL REFERENCES sessions(id), position INTEGER NOT NULL,
            chunk INTEGER NOT NULL REFERENCES chunks(id),
            turn INTEGER NOT NULL, message_id TEXT NOT NULL, role TEXT NOT NULL, exchange INTEGER NOT NULL,
            ends INTEGER,                  -- the turn to fork after; NULL for the session's end
            tokens INTEGER NOT NULL,       -- what a fork there loads
            PRIMARY KEY(session, position)
        ) WITHOUT ROWID;
        CREATE INDEX placements_chunk ON placements(chunk);

        CREATE VIRTUAL TABLE chunk_words USING fts5(
            part, text, content='', contentless_delete=1, tokenize='{TOKENIZER}');
        CREATE VIRTUAL TABLE session_words USING fts5(
            part, title, asked, answered, actions, symbols, content='', contentless_delete=1, tokenize='{TOKENIZER}');
        """
    )


def m002_made_for_searching(db: apsw.Connection) -> None:
    """Vectors as bytes in an ordinary table, those of an older form made again; chunks' words without their lengths.

    Chunks are about equally long. To look up the length of every one that has a word takes three quarters of a search.
    """
    db.execute(
        f"""
        CREATE TABLE vector_blocks(id INTEGER PRIMARY KEY, part INTEGER NOT NULL, records BLOB NOT NULL);
        CREATE INDEX vector_blocks_part ON vector_blocks(part);

        -- The block that holds a chunk's vector; 0 while it waits for one.
        ALTER TABLE chunks RENAME COLUMN embedded TO block;
        UPDATE chunks SET block = 0 WHERE block <> 0;
        DROP INDEX chunks_embedded;
        DELETE FROM meta WHERE key IN ('model', 'dimensions');

        DROP TABLE chunk_words;
        CREATE VIRTUAL TABLE chunk_words USING fts5(part, text, content='', columnsize=0, tokenize='{TOKENIZER}');
        INSERT INTO chunk_words(rowid, part, text) SELECT id, 'p' || part, text FROM chunks;
        """  # noqa: S608 - constant
    )


def m003_what_a_session_knows(db: apsw.Connection) -> None:
    """Until when it can be found by anything, and its last exchange in which it did something of its own."""
    db.execute(
        """
        ALTER TABLE sessions ADD COLUMN until TEXT NOT NULL DEFAULT '';
        ALTER TABLE sessions ADD COLUMN acted INTEGER NOT NULL DEFAULT -1;
        UPDATE sessions SET until = last_activity;
        """
    )


def m004_nothing_deleted_is_left(db: apsw.Connection) -> None:
    """What was deleted before this was known to stay in the file is erased at the next occasion (`erasure.py`)."""
    db.execute("INSERT OR REPLACE INTO meta SELECT 'erase', 'all' WHERE EXISTS (SELECT 1 FROM sessions)")


def m005_passages_are_spans_of_the_export(db: apsw.Connection) -> None:
    """On which lines of it each stands, and the digest of the export whose lines these are; 0 where it is not known.

    What became of a session's work, and which files it edited until when.
    """
    db.execute(
        """
        ALTER TABLE placements ADD COLUMN first_line INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE placements ADD COLUMN last_line INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE sessions ADD COLUMN export BLOB NOT NULL DEFAULT x'';

        ALTER TABLE sessions ADD COLUMN outcome TEXT NOT NULL DEFAULT 'unknown';
        CREATE TABLE edits(
            session INTEGER PRIMARY KEY REFERENCES sessions(id),
            until TEXT NOT NULL,
            files TEXT NOT NULL            -- a JSON list of absolute paths
        );
        """
    )


def m006_who_said_what_and_where(db: apsw.Connection) -> None:
    """Who speaks from where on in a passage, and what tells the project of a session that no log says."""
    db.execute(
        """
        -- Where in the chunk's text others than `role` begin, as JSON [[7, "assistant"], ...]; NULL where nobody knows.
        ALTER TABLE placements ADD COLUMN voices TEXT;

        -- What the directory was inferred from, and the commit that the session began at; empty where the log says it.
        ALTER TABLE sessions ADD COLUMN inferred_from TEXT NOT NULL DEFAULT '';
        ALTER TABLE sessions ADD COLUMN head TEXT NOT NULL DEFAULT '';
        """
    )


def m007_sqlite_vec_keeps_the_vectors(db: apsw.Connection) -> None:
    """Which chunks have one: their `block`, the place where it was, is not 0. `blocks.py` moves the vectors themselves,
    for which sqlite-vec must be there.
    """
    db.execute("CREATE INDEX chunks_embedded ON chunks(part) WHERE block <> 0")


def m008_found_by_names_that_are_not_shown(db: apsw.Connection) -> None:
    """What a session is called besides its title, a name a line."""
    db.execute("ALTER TABLE sessions ADD COLUMN also_called TEXT NOT NULL DEFAULT ''")


def m009_what_came_to_nothing(db: apsw.Connection) -> None:
    """The last exchange that came to something, where later ones did not; -1 where none did."""
    if not db.execute("SELECT 1 FROM pragma_table_info('sessions') WHERE name = 'answered'").fetchall():
        db.execute("ALTER TABLE sessions ADD COLUMN answered INTEGER")


def m010_what_it_worked_on(db: apsw.Connection) -> None:
    """Sessions by the files that they edited and the names of code in what they wrote."""
    db.execute(
        f"""
        CREATE VIRTUAL TABLE IF NOT EXISTS session_work USING fts5(
            part, names, content='', contentless_delete=1, tokenize='{TOKENIZER}');
        INSERT INTO session_work(rowid, part, names) SELECT id, 'p' || part, '' FROM sessions
            WHERE id NOT IN (SELECT rowid FROM session_work);
        """  # noqa: S608 - constant
    )


MIGRATIONS = (
    m001_sessions_and_chunks,
    m002_made_for_searching,
    m003_what_a_session_knows,
    m004_nothing_deleted_is_left,
    m005_passages_are_spans_of_the_export,
    m006_who_said_what_and_where,
    m007_sqlite_vec_keeps_the_vectors,
    m008_found_by_names_that_are_not_shown,
    m009_what_came_to_nothing,
    m010_what_it_worked_on,
)


def migrate(db: apsw.Connection) -> None:
    """Bring the database to the newest form; safe when several processes do it at once.

    Raises:
        NewerIndexError: a newer smart-fork has written it.
    """
    if _version(db) == len(MIGRATIONS):
        return
    with immediate(db):
        done = _version(db)
        if done > len(MIGRATIONS):
            raise NewerIndexError(f"the index was written by a newer smart-fork (form {done}, known {len(MIGRATIONS)})")
        for number, step in enumerate(MIGRATIONS[done:], start=done + 1):
            step(db)
            db.execute(f"PRAGMA user_version = {number}")


class NewerIndexError(IndexerError):
    """The index on disk has a form that this version does not know."""

    code = "newer_index"
    usual_hint = "Update smart-fork, or give this version a folder of its own with SMART_FORK_HOME."


class immediate:  # noqa: N801 - reads as a statement
    """A transaction that takes the write lock at its start, so that it never fails half way for want of it."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def _version(db: apsw.Connection) -> int:
    (number,) = db.execute("PRAGMA user_version").fetchone() or (0,)
    return int(number)
