"""Makes the tables of a team's server, which ``schema.sql`` describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import psycopg

from smart_fork.errors import SmartForkError

Connection: TypeAlias = psycopg.Connection[Any]

#: Changes with the tables. A database of another form is not served.
FORM = 15
_TABLES = Path(__file__).with_name("schema.sql")
#: Whoever makes the tables holds this lock, of which there is one in a database.
_LOCK = 0x5F0_4B5


def create(db: Connection) -> None:
    """Make the tables where there are none; others who do the same wait. `db` gives rows as tuples.

    Raises:
        SmartForkError: Another version has made them.
    """
    db.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
    try:
        with db.transaction():  # who may serve need not be who may make tables
            if not _one(db, "SELECT to_regclass('form') IS NOT NULL"):
                db.execute(_TABLES.read_bytes())
                db.execute("INSERT INTO form(number) VALUES (%s)", (FORM,))
        made = _one(db, "SELECT max(number) FROM form")
        if made != FORM:
            raise SmartForkError(
                f"Another version of smart-fork has made this database (form {made}, known {FORM}).",
                "Serve it with that version",
            )
    finally:
        db.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _one(db: Connection, question: str) -> Any:
    row = db.execute(question).fetchone()
    return row[0] if row else None


def make_database(owner_conninfo: str, name: str) -> None:
    """Make the database of the server in a PostgreSQL that is new."""
    with psycopg.connect(owner_conninfo, autocommit=True) as db:
        if db.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            db.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
