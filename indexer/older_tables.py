"""Upgrades the tables of an older version. Their rows stay."""

from __future__ import annotations

from contextlib import closing

import apsw

#: Values of added columns that must not be NULL and have no default.
_EMPTY = {"INTEGER": "0", "TEXT": "''", "BLOB": "x''"}


def bring_up(db: apsw.Connection, tables: str) -> None:
    """Add the tables, columns and indexes to `db` that it lacks of these `tables`, in the caller's transaction.

    Raises:
        apsw.SQLError: it has other tables of these names.
    """
    with closing(apsw.Connection(":memory:")) as new:
        new.execute(tables)
        wanted = new.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql <> '' ORDER BY type = 'index'").get
        for kind, name, sql in wanted:
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)).get:
                db.execute(sql)
            elif kind == "table":
                _add_columns(db, new, name)


def _add_columns(db: apsw.Connection, new: apsw.Connection, table: str) -> None:
    had = {column for _, column, *_ in db.execute(f"PRAGMA table_info({table})")}
    for _, column, kind, needed, default, _ in new.execute(f"PRAGMA table_info({table})").fetchall():
        if column not in had:
            value = f" NOT NULL DEFAULT {default or _EMPTY[str(kind)]}" if needed else ""
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}{value}")
