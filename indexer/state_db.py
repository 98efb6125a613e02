"""A database of facts that outlive a process and cannot be rebuilt, ``<SMART_FORK_HOME>/state.db``, for both packages.

Each change is one transaction. Deleted data is overwritten, and no journal with old data stays. In a read-only home,
the database can still be queried. Every function raises `StateUnavailable` if it cannot do its work.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from indexer.errors import StateUnavailable
from indexer.json_values import dict_in, dicts_in
from indexer.safe_files import private_dir, state_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    import apsw


BUSY_MILLISECONDS = 15_000
#: After a failed wait for the database, nothing in this process waits again before this time, because a search reads it
#: often.
_impatient_until = -1.0
#: Increase this when older programs could no longer use the tables. They then refuse to.
_FORM = 1
#: Increase this when the tables change. It is stored as ``application_id``, and older layouts are upgraded.
_LAYOUT = 1
_TABLES = """
-- Single values, as JSON: what can be found out again, and what belongs to this machine.
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- Sessions that must not be indexed again, and since when.
CREATE TABLE forgotten (agent TEXT, session_id TEXT, at TEXT NOT NULL, PRIMARY KEY (agent, session_id)) WITHOUT ROWID;
-- The session that another one began with (`nth` 0), and those that were merged into it.
CREATE TABLE handovers (
    session_id TEXT, nth INTEGER, agent TEXT NOT NULL, source_agent TEXT NOT NULL, source_session_id TEXT NOT NULL,
    through TEXT NOT NULL, PRIMARY KEY (session_id, nth)
) WITHOUT ROWID;
-- The ids of sessions that have somebody else's messages, and of these messages.
CREATE TABLE foreign_ids (id TEXT, session_id TEXT, PRIMARY KEY (id, session_id)) WITHOUT ROWID;
-- Logs that were written here of shared sessions, as JSON; and what is still to be taken out of them.
CREATE TABLE pulled (
    id TEXT PRIMARY KEY, written TEXT NOT NULL, edits TEXT, says TEXT, count_before INTEGER
) WITHOUT ROWID;
-- Withdrawals whose answers have not come, and copies that are being written.
CREATE TABLE withdrawals (session_id TEXT PRIMARY KEY, asked TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE unfinished_copies (
    session_id TEXT PRIMARY KEY, agent TEXT NOT NULL, root TEXT NOT NULL, project TEXT NOT NULL
) WITHOUT ROWID;
-- What is to be erased beside the index, as JSON, and the process that is at it.
CREATE TABLE owed_erasures (id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, facts TEXT NOT NULL);
-- The repositories that sessions worked in, by directory; and directories whose sessions a person gave to another one.
CREATE TABLE repositories (
    top TEXT PRIMARY KEY, key TEXT NOT NULL, roots TEXT NOT NULL, remote TEXT NOT NULL, head TEXT NOT NULL,
    last TEXT NOT NULL, place TEXT NOT NULL, shallow INTEGER NOT NULL, config TEXT NOT NULL, made TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE adopted (old TEXT PRIMARY KEY, top TEXT NOT NULL) WITHOUT ROWID;
-- What came of sessions, when they were tried, and who said it; `source_session_id` is the session that one was forked
-- from. And what sessions are marked with: tags, and words of ours, which begin with a colon.
CREATE TABLE verdicts (
    agent TEXT, session_id TEXT, source_session_id TEXT NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL,
    tried TEXT NOT NULL, said_by TEXT NOT NULL, PRIMARY KEY (agent, session_id)
) WITHOUT ROWID;
CREATE TABLE marks (agent TEXT, session_id TEXT, mark TEXT, PRIMARY KEY (agent, session_id, mark)) WITHOUT ROWID;
"""

#: SQL that copies rows of an older form into the table `pulled`.
_OLD_PULLED = """
INSERT INTO pulled SELECT id, json_object('path', path, 'agent', agent, 'root', root, 'server', server,
    'project', project, 'records', json(records), 'sessions', json(sessions), 'crossed_from', json(crossed_from),
    'crossed', json(crossed)), edits, says, count_before FROM pulled_before;
DROP TABLE pulled_before;
"""


def rows(query: str, *values: object) -> list[tuple[Any, ...]]:
    """Run a query on the state database and return its rows; none if nothing was ever stored."""
    if not path().exists():
        if not any(map(Path.exists, _older_files())):
            return []
        with changing():  # which takes them over
            pass
    with _opened() as db:
        return list(db.execute(query, values)) if db.pragma("user_version") else []


@contextmanager
def changing() -> Iterator[apsw.Connection]:
    """Open a transaction on the state database for this block, with the write lock from its start."""
    private_dir(path().parent)
    with suppress(FileExistsError):  # to open and close one that is there would release other threads' locks on it
        os.close(os.open(path(), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))  # its journal gets the same mode
    with _opened() as db:
        db.pragma("secure_delete", 1)
        db.execute("BEGIN IMMEDIATE")  # apsw runs what follows a statement with a row only when that is fetched
        if not db.pragma("user_version"):
            db.execute(f"{_TABLES} PRAGMA user_version = {_FORM}; PRAGMA application_id = {_LAYOUT}")
            _take_over(db)
        yield db
        db.execute("COMMIT")  # what is closed before that is rolled back


def change(query: str, *values: object) -> int:
    """Run one writing statement, in a transaction of its own. Return the number of changed rows."""
    if query.startswith("DELETE") and not path().exists():
        return 0
    with changing() as db:
        db.execute(query, values)
        return db.changes()


def fact(name: str) -> Any:
    """Return the value that `keep` stored under `name`; `None` if there is no such value."""
    found = rows("SELECT value FROM facts WHERE name = ?", name)
    return orjson.loads(found[0][0]) if found else None


def keep(name: str, value: Any) -> None:
    """Store a JSON `value` under `name`. `None` deletes the stored value."""
    if value is not None:
        change("INSERT OR REPLACE INTO facts VALUES (?, ?)", name, orjson.dumps(value).decode())
    else:
        change("DELETE FROM facts WHERE name = ?", name)


def damage() -> str:
    """Return SQLite's description of damage in the state database; empty if it is sound."""
    said = [str(one) for (one,) in rows("PRAGMA integrity_check(1)")]
    return "" if said in ([], ["ok"]) else said[0]


def path() -> Path:
    """Return the path of the state database."""
    return state_home() / "state.db"


@contextmanager
def _opened() -> Iterator[apsw.Connection]:
    import apsw  # who keeps nothing, such as most hooks, has no time for it

    global _impatient_until  # noqa: PLW0603 - of all threads: they wait for the same process
    try:
        with closing(apsw.Connection(str(path()), flags=apsw.SQLITE_OPEN_READWRITE)) as db:
            db.set_busy_timeout(BUSY_MILLISECONDS // (100 if time.monotonic() < _impatient_until else 1))
            if db.pragma("user_version") > _FORM:
                raise StateUnavailable(errno.EINVAL, "a newer version of smart-fork has written it", str(path()))
            if db.pragma("user_version") and db.pragma("application_id") < _LAYOUT:
                with suppress(apsw.ReadOnlyError):  # it is asked as it is
                    _bring_up(db)
            yield db
    except apsw.Error as error:
        if isinstance(error, apsw.BusyError):
            _impatient_until = time.monotonic() + BUSY_MILLISECONDS / 1000
        raise StateUnavailable(*_said(error), str(path())) from error


def _bring_up(db: apsw.Connection) -> None:
    from indexer.sqlite_tools import add_missing_tables

    db.execute("BEGIN IMMEDIATE")
    if db.pragma("application_id") < _LAYOUT:  # another process may have been first
        if parted := db.execute("SELECT 1 FROM pragma_table_info('pulled') WHERE name = 'crossed_from'").get:
            db.execute("ALTER TABLE pulled RENAME TO pulled_before")
        add_missing_tables(db, _TABLES)
        if parted:
            db.execute(_OLD_PULLED)
        db.execute(f"PRAGMA application_id = {_LAYOUT}")
    db.execute("COMMIT")


def _older_files() -> tuple[Path, Path]:
    """Return the paths at which older versions stored the list of forgotten sessions and the handed-over sessions."""
    return state_home() / "forgotten.jsonl", state_home() / "handovers"


def _take_over(db: apsw.Connection) -> None:
    forgotten, handovers = _older_files()
    for line in forgotten.read_bytes().splitlines() if forgotten.is_file() else ():
        with suppress(ValueError, TypeError):
            agent, session_id, at = orjson.loads(line)
            db.execute("INSERT OR IGNORE INTO forgotten VALUES (?, ?, ?)", (str(agent), str(session_id), str(at)))
    for file in handovers.iterdir() if handovers.is_dir() else ():
        with suppress(ValueError, TypeError, KeyError, OSError):
            said = dict_in(orjson.loads(file.read_bytes()))
            for nth, one in enumerate((said, *dicts_in(said.get("others")))):
                source = (one["source_agent"], one["source_session_id"], one.get("through", ""))
                db.execute(
                    "INSERT OR IGNORE INTO handovers VALUES (?, ?, ?, ?, ?, ?)",
                    (file.name, nth, said["agent"], *source),
                )


def _said(error: apsw.Error) -> tuple[int, str]:
    """Return the operating system's error number and message for an SQLite error."""
    import apsw

    for kind, number in (
        (apsw.FullError, errno.ENOSPC), (apsw.ReadOnlyError, errno.EROFS), (apsw.CantOpenError, errno.EACCES),
        (apsw.PermissionsError, errno.EACCES),
    ):  # fmt: skip
        if isinstance(error, kind):
            return number, os.strerror(number)
    return errno.EAGAIN if isinstance(error, apsw.BusyError) else errno.EIO, str(error)
