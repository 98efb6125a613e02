"""The tables of ``workers.db``."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from indexer.errors import next_step, what_failed
from indexer.files import private_dir
from indexer.state import bring_up
from indexer.store.schema import immediate, write_ahead
from smart_fork.errors import RegistryUnavailable


def opened(path: Path, patience: int) -> apsw.Connection:
    """The database, made where it is missing; other processes are waited for `patience` milliseconds.

    Raises:
        RegistryUnavailable: it is damaged, a newer version made it, or the disk or another process refuses.
    """
    private_dir(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))  # its WAL gets the same mode
    try:
        db = apsw.Connection(str(path))
        write_ahead(db, patience)
        db.execute("PRAGMA foreign_keys = ON")
        _create(db)
    except apsw.Error as error:
        raise unusable(path, error) from error
    return db


def unusable(path: Path, error: apsw.Error) -> RegistryUnavailable:
    """`error` of this registry, with what to do about it. A damaged one stays where it is: it cannot be rebuilt."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return RegistryUnavailable(
            f"The register of workers, {path}, is damaged: {error}",
            "New workers cannot start. Running workers continue. Move it away to begin again, or save its readable "
            f"part: mv {path} {path}.damaged && sqlite3 {path}.damaged .recover | sqlite3 {path}",
        )
    return RegistryUnavailable(f"The register of workers cannot be used: {what_failed(error)}", next_step(error))


#: Raised with the tables: those of an older form are brought up to it.
_FORM = 7
_TABLES = """
CREATE TABLE workers (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, name TEXT NOT NULL, source_session_id TEXT NOT NULL,
    session_id TEXT UNIQUE, caller_session_id TEXT, place TEXT NOT NULL, terminal_id TEXT, pid INTEGER,
    cwd TEXT NOT NULL, command TEXT NOT NULL DEFAULT '[]', prompt TEXT NOT NULL, state TEXT NOT NULL,
    started_at TEXT NOT NULL, log_path TEXT,
    -- How it was started, in which worktree, what its hooks said last, and when it ended.
    kind TEXT NOT NULL DEFAULT 'fork', attach TEXT NOT NULL DEFAULT '',
    worktree TEXT, branch TEXT, base_commit TEXT, depth INTEGER NOT NULL DEFAULT 1,
    permission_mode TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT '', status_note TEXT NOT NULL DEFAULT '', status_at TEXT, ended_at TEXT,
    -- The session that it had last. A later worker may go on with it: then that one has it in `session_id`.
    last_session_id TEXT,
    -- The process that starts it: where that has died, nothing comes of the start.
    maker INTEGER,
    -- The copy of a log that is made for it.
    copied_to TEXT
);
CREATE INDEX workers_of_caller ON workers (caller_session_id);
-- The transcripts that were copied for workers.
CREATE TABLE staged_copies (
    path TEXT PRIMARY KEY, session_id TEXT NOT NULL, source_path TEXT NOT NULL, staged_at TEXT NOT NULL
);
CREATE INDEX staged_copies_of_session ON staged_copies (session_id);
-- Every session that a worker has had: ``/clear`` and ``/resume`` give it another one.
CREATE TABLE worker_sessions (session_id TEXT PRIMARY KEY, worker_id TEXT NOT NULL REFERENCES workers (id));
CREATE INDEX worker_sessions_of_worker ON worker_sessions (worker_id);
"""


def _create(db: apsw.Connection) -> None:
    if db.pragma("user_version") == _FORM:
        return
    with immediate(db):  # another process may have been first
        form = db.pragma("user_version")
        if form > _FORM:
            raise RegistryUnavailable(
                f"{db.filename} was written by a newer version",
                "Restart what runs of the older version, or update it. To begin again, move the file away.",
            )
        if form != _FORM:
            bring_up(db, _TABLES)
            db.execute(f"PRAGMA user_version = {_FORM}")
