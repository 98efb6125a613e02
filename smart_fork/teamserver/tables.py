"""The database that a server uses: its own, or one that somebody else runs; with its tables, of ``schema.sql``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from psycopg.rows import dict_row

from smart_fork.errors import ProgramFailed, SmartForkError
from smart_fork.teamserver.cluster import APP, DATABASE, JOBS, OWNER, Account, Cluster, Programs, programs
from smart_fork.teamserver.database import Connection

AnyConnection: TypeAlias = psycopg.Connection[Any]

#: Changes with the tables. `OLDEST_FORM` is the oldest form whose servers can still work on them: a new version adds
#: tables and columns, and raises it only after a release whose servers do not need what goes.
FORM = OLDEST_FORM = 16
#: What makes the tables of each newer form from those of the one before, for databases that have these already.
STEPS: Mapping[int, str] = {}
_TABLES = Path(__file__).with_name("schema.sql")
#: Whoever makes the tables holds this lock, of which there is one in a database.
_LOCK = 0x5F0_4B5


def create(db: AnyConnection) -> None:
    """Make the tables where there are none; others who do the same wait. `db` gives rows as tuples.

    Raises:
        SmartForkError: Another version has made them.
    """
    with db.transaction():  # who may serve need not be who may make tables
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not _one(db, "SELECT to_regclass('form') IS NOT NULL"):
            db.execute(_TABLES.read_bytes())
            db.execute("INSERT INTO form(number, oldest) VALUES (%s, %s)", (FORM, OLDEST_FORM))
        made, oldest = _form(db)
        for number in range(made + 1, FORM + 1):
            if number not in STEPS:
                break
            db.execute(STEPS[number].encode())
            db.execute("INSERT INTO form(number, oldest) VALUES (%s, %s)", (number, OLDEST_FORM))
            made = number
    if oldest > FORM:
        raise SmartForkError(
            f"A newer version of smart-fork made this database (form {made}); this version serves form {FORM}.",
            "Install the newer version again, or restore a backup from before its installation.",
        )
    if made < FORM:
        raise SmartForkError(
            f"Another version of smart-fork has made this database (form {made}, known {FORM}).",
            "Serve it with that version",
        )


def _form(db: AnyConnection) -> tuple[int, int]:
    row = db.execute("SELECT number, oldest FROM form ORDER BY number DESC LIMIT 1").fetchone()
    return row or (0, 0)


def _one(db: AnyConnection, question: str) -> Any:
    row = db.execute(question).fetchone()
    return row[0] if row else None


def make_database(owner_conninfo: str, name: str) -> None:
    """Make the database of the server in a PostgreSQL that is new."""
    with psycopg.connect(owner_conninfo, autocommit=True) as db:
        if db.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            db.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))


#: The oldest PostgreSQL that has what is needed.
OLDEST = 160_000
_PGVECTOR, _NUMBERS = "0.8", re.compile(r"[0-9]+")
_EXTENSION = "As a superuser, connected to that database: CREATE EXTENSION vector; then start the server again."
_REACHED = "--dsn looks like postgresql://USER@HOST/DATABASE, with the password in PGPASSWORD. Try it with psql."
#: Connections of others than the processes that answer: of the worker, of commands, of a backup.
SPARE_CONNECTIONS = 30
#: So long a command waits for a database that starts.
SECONDS_TO_WAIT, _AGAIN_SECONDS = 60.0, 0.1
_STARTS = ("starting up", "not yet accepting connections")


@dataclass(frozen=True, slots=True)
class Roles:
    """How to connect as who owns the tables, who answers requests, and who works in the background."""

    owner: str
    app: str
    jobs: str


@contextmanager
def embedded(folder: Path, account: Account, connections: int, found: Programs | None = None) -> Iterator[Cluster]:
    """A database of the server's own, which runs as long as this."""
    settings = {"max_connections": str(connections + SPARE_CONNECTIONS)}
    with Cluster(folder, account, found or programs(), settings).running() as cluster:
        make_database(cluster.conninfo(OWNER, "postgres"), DATABASE)
        with_tables(cluster.conninfo(OWNER))
        yield cluster


def roles_of(cluster: Cluster) -> Roles:
    """How to connect to a database of the server's own."""
    return Roles(cluster.conninfo(OWNER), cluster.conninfo(APP), cluster.conninfo(JOBS))


def elsewhere(dsn: str) -> Roles:
    """A database that somebody else runs. Each transaction there takes the role that it is for.

    Raises:
        ProgramFailed: It cannot be reached, or is too old.
    """
    with_tables(dsn)
    return Roles(dsn, dsn, dsn)


def with_tables(conninfo: str) -> None:
    """Make the tables where there are none; several servers that begin at the same time wait for each other.

    Raises:
        ProgramFailed: The database cannot be reached, is too old, or its user may not make tables.
    """
    try:
        with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as db:
            _fits(db)
            create(db)
    except psycopg.errors.InsufficientPrivilege as error:
        if "extension" in str(error):
            raise ProgramFailed(f"{_called(conninfo)} has no pgvector yet: {_told(error)}", _EXTENSION) from error
        raise ProgramFailed(
            f"The tables cannot be made: {_told(error)}",
            "Name a user in --dsn who owns the database and may make roles (CREATEROLE)",
        ) from error
    except psycopg.OperationalError as error:
        raise ProgramFailed(f"The database cannot be reached: {_told(error)}", _REACHED) from error
    except psycopg.ProgrammingError as error:
        raise _no_database(error) from error


def _no_database(error: psycopg.ProgrammingError) -> ProgramFailed:
    return ProgramFailed(f"That is not a database address: {_told(error)}", _REACHED)


@contextmanager
def at_hand(folder: Path, dsn: str | None = None) -> Iterator[Connection]:
    """A transaction as who owns the tables of a server that runs here, over its socket, or of the database `dsn`.

    Raises:
        ProgramFailed: None runs, or somebody else's.
    """
    try:
        connection = _connected(dsn) if dsn else _once_started(_cluster(folder).conninfo(OWNER))
    except psycopg.OperationalError as error:
        where = "the database" if dsn else f"the team server of {folder}"
        raise ProgramFailed(
            f"No answer from {where}: {_told(error)}",
            "Start it (smart-fork team serve), name its folder (--data), or ask as the user who runs it",
        ) from error
    except psycopg.ProgrammingError as error:
        raise _no_database(error) from error
    name, user = connection.info.dbname, connection.info.user
    try:
        with connection:
            yield connection
    except psycopg.errors.UndefinedTable as error:
        serve = f"smart-fork team serve{' --dsn DSN' if dsn else ''}"
        raise ProgramFailed(
            f"{name} has no tables of the team server yet.", f"{serve} creates them at its start."
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise ProgramFailed(
            f"{user} may not do that in {name}: {_told(error)}", "Name the user in --dsn who owns the tables."
        ) from error


def address(folder: Path) -> str:
    """Where the server of a folder is asked, as who owns its tables.

    Raises:
        ProgramFailed: There is none.
    """
    return _cluster(folder).conninfo(OWNER)


def _cluster(folder: Path) -> Cluster:
    try:
        seen = folder.stat()
    except OSError as error:
        raise ProgramFailed(
            f"No team server in {folder} ({error.strerror}).",
            "Start it (smart-fork team serve), or name its folder (--data)",
        ) from error
    account = Account(seen.st_uid, seen.st_gid, str(seen.st_uid))
    return Cluster(folder, account, Programs(Path(), 0))


def _once_started(conninfo: str) -> Connection:
    """A connection; a database that is being started, or starts again after it was killed, is waited for."""
    until = time.monotonic() + SECONDS_TO_WAIT
    while True:
        try:
            return _connected(conninfo)
        except psycopg.OperationalError as error:
            if not any(words in str(error) for words in _STARTS) or time.monotonic() > until:
                raise
            time.sleep(_AGAIN_SECONDS)


def _connected(conninfo: str) -> Connection:
    return psycopg.connect(conninfo, row_factory=dict_row, prepare_threshold=None)


def _fits(db: psycopg.Connection[tuple[object, ...]]) -> None:
    if db.info.server_version < OLDEST:
        version = db.info.server_version // 10_000
        raise ProgramFailed(f"PostgreSQL {version} is too old.", f"The team server needs {OLDEST // 10_000} or newer")
    row = db.execute(
        "SELECT coalesce(installed_version, default_version), installed_version IS NOT NULL"
        " FROM pg_available_extensions WHERE name = 'vector'"
    ).fetchone()
    if row is None:
        raise ProgramFailed(
            f"The PostgreSQL of {db.info.dbname} has no pgvector.",
            f"Install pgvector {_PGVECTOR} or newer on its machine. Then as a superuser: CREATE EXTENSION vector;",
        )
    known, made = str(row[0]), bool(row[1])
    if tuple(map(int, _NUMBERS.findall(known)[:2])) < tuple(map(int, _PGVECTOR.split("."))):
        update = "ALTER EXTENSION vector UPDATE;" if made else "CREATE EXTENSION vector;"
        raise ProgramFailed(
            f"pgvector {known} in {db.info.dbname} is too old.",
            f"Install {_PGVECTOR} or newer on its machine. Then as a superuser: {update}",
        )


def _called(conninfo: str) -> str:
    """The name of a database."""
    return str(psycopg.conninfo.conninfo_to_dict(conninfo).get("dbname") or "The database")


def _told(error: psycopg.Error) -> str:
    """The first line; a password is not in it, and what looks like one is masked."""
    return SmartForkError(str(error).strip().split("\n")[0][:200]).message
