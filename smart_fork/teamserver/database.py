"""Connections to the server's database: each transaction is somebody's, and sees what he may see.

A question that changes nothing may go to a replica, if that has all that the primary had written when it came.
So everybody reads what they have written, and what was withdrawn is gone at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import psycopg
from pgvector.psycopg.halfvec import register_halfvec_info
from psycopg import Connection as PsycopgConnection
from psycopg import errors
from psycopg.rows import DictRow, dict_row
from psycopg.types import TypeInfo
from psycopg_pool import ConnectionPool, PoolTimeout

from smart_fork.teamserver.cluster import APP

Connection: TypeAlias = PsycopgConnection[DictRow]
#: Nobody has this number: who has not said who he is sees no session.
NOBODY = 0
CONNECTIONS = 16
SECONDS_FOR_A_CONNECTION = 10.0
#: So long a question waits for the replica. One that does not answer is not asked again for a while.
SECONDS_FOR_A_REPLICA, SECONDS_WITHOUT_REPLICA = 0.25, 10.0
_AGAIN_SECONDS = 0.005
#: Some databases that are run by others do not answer this.
_WRITTEN = "SELECT pg_current_wal_flush_lsn()::text AS written"
_NO_REPLICA = (
    psycopg.OperationalError,
    psycopg.NotSupportedError,
    errors.InsufficientPrivilege,
    errors.UndefinedFunction,
)
_CAUGHT_UP = "SELECT coalesce(pg_last_wal_replay_lsn() >= %s::pg_lsn, false) AS up"

T = TypeVar("T")
log = logging.getLogger(__name__)


class Database:
    """A pool of connections; each transaction is of the server's role, which owns nothing, or of the one that is named.

    Whoever connects has to be that role, or a member of it. `replica` is the address of a copy of the database.
    """

    def __init__(
        self, conninfo: str, connections: int = CONNECTIONS, role: str = APP, *, replica: str | None = None
    ) -> None:
        self._role = role
        self._pool = _pool(conninfo, connections)
        self._replica = None if replica is None else _pool(replica, connections)
        self._replica_from = 0.0

    def __enter__(self) -> Self:
        self._pool.open()
        if self._replica is not None:
            self._replica.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()
        if self._replica is not None:
            self._replica.close()

    @contextmanager
    def asked_by(self, user: int = NOBODY) -> Iterator[Connection]:
        """A transaction in which row-level security knows who asks."""
        with self._pool.connection() as db, db.transaction():
            self._become(db, user)
            yield db

    def read(self, user: int, question: Callable[[Connection], T]) -> T:
        """Answer a question that changes nothing, from the replica if it is there and up to date."""
        if self._replica is not None and time.monotonic() >= self._replica_from:
            try:
                with self.asked_by() as db:
                    row = db.execute(_WRITTEN).fetchone()
                with self._replica.connection(SECONDS_FOR_A_REPLICA) as copy, copy.transaction():
                    if _caught_up(copy, row["written"] if row else ""):
                        self._become(copy, user)
                        return question(copy)
            except (*_NO_REPLICA, PoolTimeout) as error:
                self._replica_from = time.monotonic() + SECONDS_WITHOUT_REPLICA
                log.warning("the replica does not answer; the primary does: %s", error)
        with self.asked_by(user) as db:
            return question(db)

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
        configure=_with_vectors,
        check=ConnectionPool.check_connection,
    )


def _caught_up(copy: Connection, written: str) -> bool:
    """Wait a moment until the replica has all of it. What is no replica never has."""
    until = time.monotonic() + SECONDS_FOR_A_REPLICA
    while True:
        row = copy.execute(_CAUGHT_UP, (written,)).fetchone()
        if row is not None and row["up"]:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(_AGAIN_SECONDS)


def _with_vectors(db: Connection) -> None:
    """Let vectors travel as they are stored, where the database knows any."""
    if (info := TypeInfo.fetch(db, "halfvec")) is not None:
        register_halfvec_info(db, info)
