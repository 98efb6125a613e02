"""The index's tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from indexer.errors import IndexerError
from indexer.older_tables import bring_up

#: How words are cut: stemmed, case and accents folded; ``_`` and ``.`` separate, so parts of identifiers are found.
TOKENIZER = "porter unicode61 remove_diacritics 2"
#: Raised with the tables. An index of an older form is brought up to it, and one of a newer form is left alone.
FORM = 17
#: The vectors of an older one are elsewhere: it is built again.
_OLDEST = 8
_TABLES = f"""
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
    until TEXT NOT NULL DEFAULT '',          -- until when it can be found by anything
    acted INTEGER NOT NULL DEFAULT -1,       -- its last exchange in which it did something of its own
    export BLOB NOT NULL DEFAULT x'',        -- digest of the export that the passages' lines are of
    outcome TEXT NOT NULL DEFAULT 'unknown', -- what became of its work
    inferred_from TEXT NOT NULL DEFAULT '',  -- what the directory was inferred from; empty where the log says it
    head TEXT NOT NULL DEFAULT '',           -- the commit that it began at
    also_called TEXT NOT NULL DEFAULT '',    -- other names of it, a name a line
    answered INTEGER,                        -- the last exchange that came to something, where later ones did not
    cache_seconds INTEGER NOT NULL DEFAULT 0, cache_used TEXT NOT NULL DEFAULT '', -- as in `Cache`
    resumed INTEGER NOT NULL DEFAULT 0, resumed_reason TEXT NOT NULL DEFAULT '', -- as in `Resumed`
    forgotten INTEGER NOT NULL DEFAULT 0,    -- how many turns its last compaction has forgotten
    instructions INTEGER NOT NULL DEFAULT 0, -- the tokens of its agent's own instructions and tools
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
    skipped TEXT NOT NULL, broken INTEGER NOT NULL, broken_lines TEXT NOT NULL,
    records INTEGER NOT NULL, unknown INTEGER NOT NULL, -- records of which the reader does not know the type
    masked INTEGER NOT NULL DEFAULT 1 -- `state` is. A running older version, which masks none, fails to write a row
);
CREATE INDEX files_session ON files(session);

CREATE TABLE chunks(
    -- Never given twice: a vector that is being computed must not land on another text.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    part INTEGER NOT NULL REFERENCES parts(id), hash BLOB NOT NULL, text TEXT NOT NULL,
    block INTEGER NOT NULL DEFAULT 0,        -- 0 while it waits for its vector
    UNIQUE(hash, part)
);
CREATE INDEX chunks_waiting ON chunks(part) WHERE block = 0;
CREATE INDEX chunks_embedded ON chunks(part) WHERE block <> 0;

CREATE TABLE placements(
    session INTEGER NOT NULL REFERENCES sessions(id), position INTEGER NOT NULL,
    chunk INTEGER NOT NULL REFERENCES chunks(id),
    turn INTEGER NOT NULL, message_id TEXT NOT NULL, role TEXT NOT NULL, exchange INTEGER NOT NULL,
    ends INTEGER,                  -- the turn to fork after; NULL for the session's end
    tokens INTEGER NOT NULL,       -- what a fork there loads
    -- The lines of the export that it stands on; 0 where they are not known.
    first_line INTEGER NOT NULL DEFAULT 0, last_line INTEGER NOT NULL DEFAULT 0,
    -- Where in the chunk's text others than `role` begin, as JSON [[7, "assistant"], ...]; NULL where nobody knows.
    voices TEXT,
    PRIMARY KEY(session, position)
) WITHOUT ROWID;
CREATE INDEX placements_chunk ON placements(chunk);

CREATE TABLE edits(
    session INTEGER PRIMARY KEY REFERENCES sessions(id),
    until TEXT NOT NULL,
    files TEXT NOT NULL            -- a JSON list of absolute paths
);

-- The lines that a call added to a file, as hashes with this index's key, one after the other.
CREATE TABLE authored(
    session INTEGER NOT NULL REFERENCES sessions(id), position INTEGER NOT NULL,
    exchange INTEGER NOT NULL, turn INTEGER NOT NULL, moment TEXT NOT NULL,
    file TEXT NOT NULL, name TEXT NOT NULL, -- the absolute path, and the last part of it
    lines BLOB NOT NULL,
    PRIMARY KEY(session, position)
) WITHOUT ROWID;
CREATE INDEX authored_name ON authored(name);

-- The errors that a session's commands met, each with where it ended or came last; hashes as above.
CREATE TABLE errors(
    session INTEGER NOT NULL REFERENCES sessions(id), line BLOB NOT NULL,
    exchange INTEGER NOT NULL, turn INTEGER NOT NULL, fate INTEGER NOT NULL,
    by BLOB NOT NULL,              -- the lines of the actions that ended it, one after the other
    PRIMARY KEY(session, line)
) WITHOUT ROWID;
CREATE INDEX errors_line ON errors(line);

-- Without lengths: chunks are about equally long, and looking up each takes three quarters of a search.
CREATE VIRTUAL TABLE chunk_words USING fts5(part, text, content='', columnsize=0, tokenize='{TOKENIZER}');
CREATE VIRTUAL TABLE session_words USING fts5(
    part, title, asked, answered, actions, symbols, content='', contentless_delete=1, tokenize='{TOKENIZER}');
-- The files that a session edited, and the names of code in what it wrote.
CREATE VIRTUAL TABLE session_work USING fts5(
    part, names, content='', contentless_delete=1, tokenize='{TOKENIZER}');
"""


def create(db: apsw.Connection) -> None:
    """Create the tables of this form, or upgrade older ones. Several processes may do it at the same time.

    Raises:
        NewerIndexError: a newer smart-fork has made them.
        OlderIndexError: the existing tables cannot be upgraded.
    """
    if _form(db) == FORM:
        return
    with immediate(db):
        form = _form(db)
        if form > FORM:
            raise NewerIndexError(f"a newer smart-fork wrote the index (form {form}, this version knows {FORM})")
        if 0 < form < _OLDEST:
            raise OlderIndexError(f"an older smart-fork wrote the index (form {form})")
        if form != FORM:
            _make(db, form)


def _make(db: apsw.Connection, before: int) -> None:
    if not before:
        db.execute(_TABLES)
    else:
        try:
            db.execute("UPDATE files SET state = x'', version = ''")  # it was not masked: each log is read again
            bring_up(db, _TABLES)
            words = "SELECT id, 'p' || part, '' FROM sessions WHERE id NOT IN (SELECT rowid FROM session_work)"
            db.execute(f"INSERT INTO session_work(rowid, part, names) {words}")
        except apsw.SQLError as error:  # not the tables that an index of this form has
            raise OlderIndexError(f"an older smart-fork wrote the index (form {before}: {error})") from error
        db.execute("INSERT OR REPLACE INTO meta VALUES('erase', 'all')")  # see `erasure`
    db.execute("INSERT OR IGNORE INTO meta VALUES('key', lower(hex(randomblob(16))))")
    db.execute(f"PRAGMA user_version = {FORM}")


class NewerIndexError(IndexerError):
    """A newer version of smart-fork has written the index: this one leaves it alone."""

    code = "newer_index"
    usual_hint = "Restart what runs of the older version, or update it. Another SMART_FORK_HOME keeps both apart."


class OlderIndexError(IndexerError):
    """The index has a form that is too old to be brought up to date: it is set aside, and built again from the logs."""

    code = "older_index"
    usual_hint = "Another process is indexing. Try again in a moment: the index is then built again from the logs."


@contextmanager
def immediate(db: apsw.Connection) -> Iterator[None]:
    """Run a transaction that holds the write lock from its start: what it has read is still true when it writes."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:  # a full disk may have ended it
            db.execute("ROLLBACK")


def _form(db: apsw.Connection) -> int:
    (number,) = db.execute("PRAGMA user_version").fetchone() or (0,)
    return int(number)
