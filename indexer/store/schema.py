"""The tables of the index, and the opening of the database."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path

import apsw

from indexer.errors import IndexerError, joined
from indexer.locks import held
from indexer.safe_files import private_dir
from indexer.sqlite_tools import add_missing_tables, write_ahead, write_transaction
from indexer.store.base import bigrams

#: How text is split into words: stemmed, without case and accents. ``_`` and ``.`` separate, so that parts of
#: identifiers are found.
TOKENIZER = "porter unicode61 remove_diacritics 2"
#: Increase this when the tables change. An index of an older form is upgraded, and one of a newer form is left alone.
FORM = 22
#: The oldest form that can be upgraded. Before it, vectors were stored elsewhere.
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
    own INTEGER NOT NULL DEFAULT 0,          -- of a fork, how many turns it has from its parent
    headline TEXT NOT NULL DEFAULT '',       -- what it did, where its title does not say it
    -- The session itself, if this row is what it did in a repository that it was not begun in. The id of such a row has
    -- a second line.
    home INTEGER REFERENCES sessions(id),
    UNIQUE(agent, session_id)
);
CREATE INDEX sessions_family ON sessions(root_id);
CREATE INDEX sessions_part ON sessions(part, last_activity);
CREATE INDEX sessions_home ON sessions(home) WHERE home NOT NULL;
CREATE INDEX sessions_cwd ON sessions(resolved_cwd);

-- The turns with which forks of a session may begin: sessions that share one are of one family.
CREATE TABLE beginnings(
    session INTEGER NOT NULL REFERENCES sessions(id), id TEXT NOT NULL, PRIMARY KEY(session, id)
) WITHOUT ROWID;
CREATE INDEX beginnings_id ON beginnings(id);

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

-- The commits that came of a session, by their messages.
CREATE TABLE commits(
    session INTEGER NOT NULL REFERENCES sessions(id), name TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY(session, name)
) WITHOUT ROWID;

-- Without lengths: chunks are about equally long, and looking up each takes three quarters of a search.
CREATE VIRTUAL TABLE chunk_words USING fts5(part, text, content='', columnsize=0, tokenize='{TOKENIZER}');
CREATE VIRTUAL TABLE session_words USING fts5(
    part, title, asked, answered, actions, symbols, content='', contentless_delete=1, tokenize='{TOKENIZER}');
-- The files that a session edited, and the names of code in what it wrote.
CREATE VIRTUAL TABLE session_work USING fts5(
    part, names, content='', contentless_delete=1, tokenize='{TOKENIZER}');
CREATE VIRTUAL TABLE commit_words USING fts5(
    part, text, content='', contentless_delete=1, tokenize='{TOKENIZER}');
"""


def create(db: apsw.Connection) -> None:
    """Create the index's tables in this version, or upgrade older tables. Several processes may do so at the same time.

    Raises:
        NewerIndexError: a newer smart-fork has made the tables.
        OlderIndexError: the tables are too old for an upgrade.
    """
    if _form(db) == FORM:
        return
    with write_transaction(db):
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
            add_missing_tables(db, _TABLES)
            words = "SELECT id, 'p' || part, '' FROM sessions WHERE id NOT IN (SELECT rowid FROM session_work)"
            db.execute(f"INSERT INTO session_work(rowid, part, names) {words}")
            # A log that is read again leaves the words of texts that have not changed.
            db.execute("INSERT INTO chunk_words(chunk_words) VALUES('delete-all')")
            passages = db.execute("SELECT id, 'p' || part, text FROM chunks")
            rows = ((id_, part, bigrams(text)) for id_, part, text in passages)
            db.executemany("INSERT INTO chunk_words(rowid, part, text) VALUES(?, ?, ?)", rows)
        except apsw.SQLError as error:  # not the tables that an index of this form has
            raise OlderIndexError(f"an older smart-fork wrote the index (form {before}: {error})") from error
        db.execute("INSERT OR REPLACE INTO meta VALUES('erase', 'all')")  # see `Store.owe_erasing`
    db.execute("INSERT OR IGNORE INTO meta VALUES('key', lower(hex(randomblob(16))))")
    db.execute(f"PRAGMA user_version = {FORM}")


class NewerIndexError(IndexerError):
    """A newer version of smart-fork has written the index. This version does not touch it."""

    code = "newer_index"
    usual_hint = "Restart what runs of the older version, or update it. Another SMART_FORK_HOME keeps both apart."


class OlderIndexError(IndexerError):
    """The index is too old for an upgrade. It is set aside (renamed), and rebuilt from the logs."""

    code = "older_index"
    usual_hint = "Another process is indexing. Try again in a moment: the index is then built again from the logs."


def _form(db: apsw.Connection) -> int:
    (number,) = db.execute("PRAGMA user_version").fetchone() or (0,)
    return int(number)


# sqlite-vec in a connection. Its file is loaded by its path: its Python module would import NumPy.

_PACKAGE, _FILE = "sqlite_vec", "vec0"


class VectorsUnavailableError(IndexerError):
    """sqlite-vec cannot be loaded, so vectors can neither be searched nor stored."""

    code = "vectors_unavailable"
    usual_hint = "Reinstall smart-fork with its dependencies, or `sqlite-vec` alone; search uses words only until then."

    def __init__(self, reason: str) -> None:
        super().__init__(f"sqlite-vec cannot be loaded: {reason}")


def load_vectors(db: apsw.Connection) -> None:
    """Load sqlite-vec into a connection, or raise `VectorsUnavailableError`."""
    path = extension_path()
    try:
        db.enable_load_extension(enable=True)
        try:
            db.load_extension(str(path))
        finally:
            db.enable_load_extension(enable=False)
    except apsw.Error as error:
        raise VectorsUnavailableError(str(error)) from error


def knows_vectors(db: apsw.Connection) -> bool:
    """Return True if sqlite-vec, the extension for vectors, is loaded in this connection."""
    return bool(db.execute("SELECT count(*) FROM pragma_module_list WHERE name = 'vec0'").get)


def extension_path() -> Path:
    """Return the path of the sqlite-vec library without its suffix, which SQLite adds."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise VectorsUnavailableError(f"the package {_PACKAGE} is not installed")
    return Path(spec.submodule_search_locations[0]) / _FILE


# Opening the database: any number of processes at once, cold or warm.

log = logging.getLogger(__name__)

BUSY_MILLISECONDS = 30_000
#: Time limit for opening the index. Only other programs hold it so long, and a search then does without the index.
OPEN_MILLISECONDS = 5_000
#: Bytes of the file that are mapped into memory. This halves the time to read all vectors of a large index.
MAPPED_BYTES = 1 << 30
_NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)


def connect(path: Path) -> apsw.Connection:
    """Open the index, with sqlite-vec if it can be loaded. A missing file is created with mode 0600.

    On a read-only file system, an existing index is opened for reading.
    """
    try:
        private_dir(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in _NOT_ALLOWED or not path.is_file():
            raise
        db = _to_read(path)
    else:
        db = _in_wal_mode(path)
    db.set_busy_timeout(BUSY_MILLISECONDS)
    db.execute(
        "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -65536; "
        "PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = 4000"  # each one waits for the disk
    )
    db.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}").fetchall()
    create(db)
    try:
        with_vectors(db)
    except VectorsUnavailableError as error:
        log.warning("%s", joined(error.message, error.hint))
    return db


def _to_read(path: Path) -> apsw.Connection:
    """Open the index for reading, with the latest changes of other processes if these can still write."""
    for how in ("mode=ro", "mode=ro&immutable=1"):
        db = apsw.Connection(
            f"{path.absolute().as_uri()}?{how}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError):
            db.close()
        else:
            return db
    raise apsw.CantOpenError(f"{path} cannot be read")


def _in_wal_mode(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    try:
        write_ahead(db, OPEN_MILLISECONDS)
    except (apsw.IOError, apsw.CantOpenError):
        # A full disk has no room for the file that connections share. One that is alone needs none, and can read.
        db.close()
        db = apsw.Connection(str(path))
        db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        write_ahead(db, OPEN_MILLISECONDS)
    return db


def vectors_version() -> str:
    """Return the version and the path of sqlite-vec, or raise `VectorsUnavailableError`."""
    with closing(apsw.Connection(":memory:")) as db:
        load_vectors(db)
        return f"{db.execute('SELECT vec_version()').get}; {extension_path()}"


def with_vectors(db: apsw.Connection) -> None:
    """Load sqlite-vec into a connection, unless it is loaded already."""
    if not knows_vectors(db):
        load_vectors(db)


def opening(path: Path) -> AbstractContextManager[None]:
    """Hold a shared lock while the database is opened, so that no process renames it."""
    return _gate(path.parent, fcntl.LOCK_SH)


def renaming(path: Path) -> AbstractContextManager[None]:
    """Hold an exclusive lock while the database is renamed with the files beside it, so that no process opens it."""
    return _gate(path.parent, fcntl.LOCK_EX)


@contextmanager
def _gate(folder: Path, how: int) -> Iterator[None]:
    """Lock a folder for this block as `how` says. If that is impossible, continue without a lock."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(held(folder, how))
        yield
