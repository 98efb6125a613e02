"""Makes the tables of a team's server, which ``schema.sql`` describes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import psycopg

from smart_fork.errors import SmartForkError

Connection: TypeAlias = psycopg.Connection[Any]

#: Changes with the tables. `OLDEST` is the oldest form whose servers can still work on them: a new version adds tables
#: and columns, and raises it only after a release whose servers do not need what goes.
FORM = OLDEST = 16
#: What makes the tables of each newer form from those of the one before, for databases that have these already.
STEPS: Mapping[int, str] = {}
_TABLES = Path(__file__).with_name("schema.sql")
#: Whoever makes the tables holds this lock, of which there is one in a database.
_LOCK = 0x5F0_4B5


def create(db: Connection) -> None:
    """Make the tables where there are none; others who do the same wait. `db` gives rows as tuples.

    Raises:
        SmartForkError: Another version has made them.
    """
    with db.transaction():  # who may serve need not be who may make tables
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not _one(db, "SELECT to_regclass('form') IS NOT NULL"):
            db.execute(_TABLES.read_bytes())
            db.execute("INSERT INTO form(number, oldest) VALUES (%s, %s)", (FORM, OLDEST))
        made, oldest = _form(db)
        for number in range(made + 1, FORM + 1):
            if number not in STEPS:
                break
            db.execute(STEPS[number].encode())
            db.execute("INSERT INTO form(number, oldest) VALUES (%s, %s)", (number, OLDEST))
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


def _form(db: Connection) -> tuple[int, int]:
    row = db.execute("SELECT number, oldest FROM form ORDER BY number DESC LIMIT 1").fetchone()
    return row or (0, 0)


def _one(db: Connection, question: str) -> Any:
    row = db.execute(question).fetchone()
    return row[0] if row else None


def make_database(owner_conninfo: str, name: str) -> None:
    """Make the database of the server in a PostgreSQL that is new."""
    with psycopg.connect(owner_conninfo, autocommit=True) as db:
        if db.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            db.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
