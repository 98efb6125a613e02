"""Connections to the server's database: each transaction is somebody's, and sees what he may see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeAlias

from pgvector.psycopg.halfvec import register_halfvec_info
from psycopg import Connection as PsycopgConnection
from psycopg.rows import DictRow, dict_row
from psycopg.types import TypeInfo
from psycopg_pool import ConnectionPool

from smart_fork.teamserver.cluster import APP

Connection: TypeAlias = PsycopgConnection[DictRow]
#: Nobody has this number: who has not said who he is sees no session.
NOBODY = 0
CONNECTIONS = 16
SECONDS_FOR_A_CONNECTION = 10.0


class Database:
    """A pool of connections; each transaction is of the server's role, which owns nothing, or of the one that is named.

    Whoever connects has to be that role, or a member of it.
    """

    def __init__(self, conninfo: str, connections: int = CONNECTIONS, role: str = APP) -> None:
        self._role = role
        # No prepared statements: a pooler between may give each transaction another connection.
        options: dict[str, Any] = {"row_factory": dict_row, "prepare_threshold": None, "autocommit": True}
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            conninfo,
            min_size=1,
            max_size=connections,
            kwargs=options,
            timeout=SECONDS_FOR_A_CONNECTION,
            open=False,
            configure=_with_vectors,
            check=ConnectionPool.check_connection,
        )

    def __enter__(self) -> Self:
        self._pool.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    @contextmanager
    def asked_by(self, user: int = NOBODY) -> Iterator[Connection]:
        """A transaction in which row-level security knows who asks."""
        with self._pool.connection() as db, db.transaction():
            db.execute(
                "SELECT set_config('role', %s, true), set_config('smartfork.user', %s, true)", (self._role, str(user))
            )
            yield db


def _with_vectors(db: Connection) -> None:
    """Let vectors travel as they are stored, where the database knows any."""
    if (info := TypeInfo.fetch(db, "halfvec")) is not None:
        register_halfvec_info(db, info)
