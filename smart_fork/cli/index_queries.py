"""A look into the index for whoever cannot wait: shells that complete, hooks. Imports little, writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import apsw

#: So long an index that is being written is waited for.
PATIENCE_MILLISECONDS = 50


class Glimpsed(NamedTuple):
    """A session as the index names it; `until` is its last activity as ISO time. The title is hostile text of a log."""

    agent: str
    session_id: str
    title: str
    until: str


def newest(path: Path, project: str | None, limit: int, beginning: str = "") -> list[Glimpsed]:
    """The newest sessions of people in the project of this key (`None`: in all), whose ids begin so.

    Empty where there is no index, or none that can be read immediately.
    """
    begins = "AND session_id >= ? AND session_id < ? ORDER BY until DESC LIMIT ?"
    values = (project, project, beginning, beginning + "\U0010ffff", limit)
    return [
        Glimpsed(*row) for row in rows(path, f"SELECT sessions.agent, session_id, title, until {_OF} {begins}", values)
    ]


def titled(path: Path, project: str, title: str) -> list[Glimpsed]:
    """Two sessions of people in the project of this key at most that have this title, in whichever case."""
    query = f"SELECT sessions.agent, session_id, title, until {_OF} AND title = ? COLLATE NOCASE LIMIT 2"
    return [Glimpsed(*row) for row in rows(path, query, (project, project, title))]


def title(path: Path, session_id: str) -> str:
    """A session's title; empty where the index does not know it."""
    found = rows(path, "SELECT title FROM sessions WHERE session_id = ? LIMIT 1", (session_id,))
    return str(found[0][0]) if found else ""


def count(path: Path, project: str) -> int:
    """Count the sessions of people in a project; 0 if the index cannot be read immediately."""
    return next((int(number) for (number,) in rows(path, f"SELECT count(*) {_OF}", (project, project))), 0)


_OF = (
    "FROM sessions JOIN parts ON parts.id = sessions.part JOIN projects ON projects.id = parts.project"
    " WHERE (? IS NULL OR projects.key = ?) AND NOT parts.automated AND home IS NULL"
)


def rows(path: Path, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    """Run a query on the database at `path`; empty if it is missing or cannot be read immediately."""
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error:
        return []
    try:
        db.set_busy_timeout(PATIENCE_MILLISECONDS)
        return list(db.execute(query, values))
    except apsw.Error:
        return []
    finally:
        db.close()
