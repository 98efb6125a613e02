"""The server's database, its own or an external one: its tables (``schema.sql``), and connections to it.

Each transaction belongs to a user: PostgreSQL's row-level security shows only the rows that this user may see. A query
that changes nothing may go to a replica that has all data of the primary database. So users can read what they have
just written, and withdrawn text disappears immediately.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import psycopg
from pgvector.psycopg.halfvec import register_halfvec_info
from psycopg import Connection as PsycopgConnection
from psycopg import errors
from psycopg.rows import DictRow, dict_row
from psycopg.types import TypeInfo
from psycopg_pool import ConnectionPool, PoolTimeout

from smart_fork.errors import ProgramFailed, SmartForkError
from smart_fork.team.server.postgres_process import APP, DATABASE, JOBS, OWNER, Cluster, Programs, SystemUser, programs

Connection: TypeAlias = PsycopgConnection[DictRow]
#: No user has this number: a transaction without a user sees no session.
NO_USER = 0
POOL_CONNECTIONS = 16
SECONDS_FOR_A_CONNECTION = 10.0
#: Seconds that a query waits for the replica, and seconds for which a silent replica is not asked again.
SECONDS_FOR_A_REPLICA, SECONDS_WITHOUT_REPLICA = 0.25, 10.0
_POLL_SECONDS = 0.005
#: Asks the primary up to where its log is written. Some hosted databases do not support this.
_WRITTEN = "SELECT pg_current_wal_flush_lsn()::text AS written"
_REPLICA_ERRORS = (
    psycopg.OperationalError,
    psycopg.NotSupportedError,
    errors.InsufficientPrivilege,
    errors.UndefinedFunction,
)
_CAUGHT_UP = "SELECT coalesce(pg_last_wal_replay_lsn() >= %s::pg_lsn, false) AS up"

T = TypeVar("T")
log = logging.getLogger(__name__)


class Database:
    """A pool of connections to the database, and one to its `replica`, if there is one.

    Each transaction runs as the PostgreSQL role `role`, which owns no tables. The user of the connection must be a
    member of this role.
    """

    def __init__(
        self, conninfo: str, connections: int = POOL_CONNECTIONS, role: str = APP, *, replica: str | None = None
    ) -> None:
        self._role = role
        self._pool = _pool(conninfo, connections)
        self._replica = None if replica is None else _pool(replica, connections)
        self._replica_from = 0.0

    def __enter__(self) -> Self:
        for pool in filter(None, (self._pool, self._replica)):
            pool.open()
        return self

    def __exit__(self, *_: object) -> None:
        for pool in filter(None, (self._pool, self._replica)):
            pool.close()

    @contextmanager
    def transaction(self, user: int = NO_USER) -> Iterator[Connection]:
        """Open a transaction that sees only what the user with this number may see, and yield its connection."""
        with self._pool.connection() as db, db.transaction():
            self._become(db, user)
            yield db

    def read(self, user: int, query: Callable[[Connection], T]) -> T:
        """Return the result of `query`, which changes nothing, for a user.

        The replica answers if it is available and up to date, else the primary database.
        """
        if self._replica is not None and time.monotonic() >= self._replica_from:
            try:
                with self.transaction() as db:
                    row = db.execute(_WRITTEN).fetchone()
                with self._replica.connection(SECONDS_FOR_A_REPLICA) as copy, copy.transaction():
                    if _caught_up(copy, row["written"] if row else ""):
                        self._become(copy, user)
                        return query(copy)
            except (*_REPLICA_ERRORS, PoolTimeout) as error:
                self._replica_from = time.monotonic() + SECONDS_WITHOUT_REPLICA
                log.warning("the replica does not answer; the primary does: %s", error)
        with self.transaction(user) as db:
            return query(db)

    def _become(self, db: Connection, user: int) -> None:
        db.execute(
            "SELECT set_config('role', %s, true), set_config('smartfork.user', %s, true)", (self._role, str(user))
        )


def _pool(conninfo: str, connections: int) -> ConnectionPool[Connection]:
    # No prepared statements: a pooler between may give each transaction another connection.
    options: dict[str, Any] = {"row_factory": dict_row, "prepare_threshold": None, "autocommit": True}
    return ConnectionPool(
        conninfo,
        min_size=1,
        max_size=connections,
        kwargs=options,
        timeout=SECONDS_FOR_A_CONNECTION,
        open=False,
        configure=_register_vectors,
        check=ConnectionPool.check_connection,
    )


def _caught_up(copy: Connection, written: str) -> bool:
    """Wait a moment until the replica has all data up to `written`, a position in the primary's write-ahead log.

    Return False if it still lacks some, or if `copy` is not connected to a replica.
    """
    until = time.monotonic() + SECONDS_FOR_A_REPLICA
    while True:
        row = copy.execute(_CAUGHT_UP, (written,)).fetchone()
        if row is not None and row["up"]:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_SECONDS)


def _register_vectors(db: Connection) -> None:
    if (info := TypeInfo.fetch(db, "halfvec")) is not None:
        register_halfvec_info(db, info)


AnyConnection: TypeAlias = psycopg.Connection[Any]

#: The version of the tables. `OLDEST_FORM` is the oldest version whose servers can still use them: a release adds
#: tables and columns, and only a later one drops those that the earlier release no longer needs.
FORM = OLDEST_FORM = 16
#: SQL that updates existing tables to each version from the one before.
STEPS: Mapping[int, str] = {}
_TABLES = Path(__file__).with_name("schema.sql")
#: The number of the database lock that a server holds while it creates tables.
_LOCK = 0x5F0_4B5


def create(db: AnyConnection) -> None:
    """Create the tables that the database lacks. `db` must return rows as tuples.

    Other servers that do the same wait. Raise `SmartForkError` if another version of smart-fork has created the tables.
    """
    with db.transaction():  # who may serve need not be who may make tables
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if db.execute("SELECT to_regclass('form') IS NULL").fetchone() == (True,):
            db.execute(_TABLES.read_bytes())
            db.execute("INSERT INTO form(number, oldest) VALUES (%s, %s)", (FORM, OLDEST_FORM))
        form = db.execute("SELECT number, oldest FROM form ORDER BY number DESC LIMIT 1").fetchone()
        made, oldest = form or (0, 0)
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


def make_database(owner_conninfo: str, name: str) -> None:
    """Create the database `name` in the server's own PostgreSQL, unless it exists."""
    with psycopg.connect(owner_conninfo, autocommit=True) as db:
        if db.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            db.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))


#: The oldest supported version of PostgreSQL.
OLDEST_POSTGRES = 160_000
_PGVECTOR, _NUMBERS = "0.8", re.compile(r"[0-9]+")
_EXTENSION_HINT = "As a superuser, connected to that database: CREATE EXTENSION vector; then start the server again."
_DSN_HINT = "--dsn looks like postgresql://USER@HOST/DATABASE, with the password in PGPASSWORD. Try it with psql."
#: Connections beyond those of the request handlers: for background jobs, commands and backups.
SPARE_CONNECTIONS = 30
#: Seconds that a command waits for a starting database, and seconds between two tries.
SECONDS_TO_WAIT, _LOOK_SECONDS = 60.0, 0.1
_STARTING_MESSAGES = ("starting up", "not yet accepting connections")


@dataclass(frozen=True, slots=True)
class Roles:
    """Connection strings for three users: the tables' owner, the request handlers, and the background process."""

    owner: str
    app: str
    jobs: str


@contextmanager
def embedded(folder: Path, account: SystemUser, connections: int, found: Programs | None = None) -> Iterator[Cluster]:
    """Run the server's own PostgreSQL in `folder` while the context lasts. Create its database and tables if needed.

    It runs as the system user `account`, and accepts up to `connections` connections.
    """
    settings = {"max_connections": str(connections + SPARE_CONNECTIONS)}
    with Cluster(folder, account, found or programs(), settings).running() as cluster:
        make_database(cluster.conninfo(OWNER, "postgres"), DATABASE)
        with_tables(cluster.conninfo(OWNER))
        yield cluster


def roles_of(cluster: Cluster) -> Roles:
    """Return the connection strings for the server's own PostgreSQL."""
    return Roles(cluster.conninfo(OWNER), cluster.conninfo(APP), cluster.conninfo(JOBS))


def external_database(dsn: str) -> Roles:
    """Return the connection strings for an external database, after creating the tables that it lacks."""
    with_tables(dsn)
    return Roles(dsn, dsn, dsn)


def with_tables(conninfo: str) -> None:
    """Create the tables that a database lacks. Raise `ProgramFailed` if that fails, or if PostgreSQL is too old."""
    try:
        with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as db:
            _check_version(db)
            create(db)
    except psycopg.errors.InsufficientPrivilege as error:
        if "extension" in str(error):
            raise ProgramFailed(
                f"{_database_name(conninfo)} has no pgvector yet: {_first_line(error)}", _EXTENSION_HINT
            ) from error
        raise ProgramFailed(
            f"The tables cannot be made: {_first_line(error)}",
            "Name a user in --dsn who owns the database and may make roles (CREATEROLE)",
        ) from error
    except psycopg.OperationalError as error:
        raise ProgramFailed(f"The database cannot be reached: {_first_line(error)}", _DSN_HINT) from error
    except psycopg.ProgrammingError as error:
        raise _no_database(error) from error


def _no_database(error: psycopg.ProgrammingError) -> ProgramFailed:
    return ProgramFailed(f"That is not a database address: {_first_line(error)}", _DSN_HINT)


@contextmanager
def owner_transaction(folder: Path, dsn: str | None = None) -> Iterator[Connection]:
    """Open a transaction as the owner of the tables, in the database `dsn` or in the one of the server in `folder`."""
    try:
        connection = _connected(dsn) if dsn else _connect_when_started(owner_conninfo(folder))
    except psycopg.OperationalError as error:
        where = "the database" if dsn else f"the team server of {folder}"
        raise ProgramFailed(
            f"No answer from {where}: {_first_line(error)}",
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
            f"{user} may not do that in {name}: {_first_line(error)}", "Name the user in --dsn who owns the tables."
        ) from error


def owner_conninfo(folder: Path) -> str:
    """Return the connection string of the tables' owner for the server in `folder`, or raise `ProgramFailed`."""
    try:
        seen = folder.stat()
    except OSError as error:
        raise ProgramFailed(
            f"No team server in {folder} ({error.strerror}).",
            "Start it (smart-fork team serve), or name its folder (--data)",
        ) from error
    account = SystemUser(seen.st_uid, seen.st_gid, str(seen.st_uid))
    return Cluster(folder, account, Programs(Path(), 0)).conninfo(OWNER)


def _connect_when_started(conninfo: str) -> Connection:
    until = time.monotonic() + SECONDS_TO_WAIT
    while True:
        try:
            return _connected(conninfo)
        except psycopg.OperationalError as error:
            if not any(words in str(error) for words in _STARTING_MESSAGES) or time.monotonic() > until:
                raise
            time.sleep(_LOOK_SECONDS)


def _connected(conninfo: str) -> Connection:
    return psycopg.connect(conninfo, row_factory=dict_row, prepare_threshold=None)


def _check_version(db: psycopg.Connection[tuple[object, ...]]) -> None:
    if db.info.server_version < OLDEST_POSTGRES:
        version = db.info.server_version // 10_000
        raise ProgramFailed(
            f"PostgreSQL {version} is too old.", f"The team server needs {OLDEST_POSTGRES // 10_000} or newer"
        )
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


def _database_name(conninfo: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(conninfo).get("dbname") or "The database")


def _first_line(error: psycopg.Error) -> str:
    return SmartForkError(str(error).strip().split("\n")[0][:200]).message
