"""All rows of one session in OpenCode's database, as lines: what a cut reads, keeps as a snapshot, and writes.

The first line is the session: its row, its rows in smaller tables, and its events. Each message has a line, with its
parts and the events that say the same again. Each session of a sub-agent has a line, with everything of that session.
OpenCode 1.18 adds an event for each change of a session, and goes on with the session without these.

``row`` has the columns other than ``data``, which is decoded. Its text is kept if JSON would be written differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import apsw
import orjson

from indexer.unchecked import dict_in, dicts_in, json_in
from smart_fork.agents.foreign_database import BUSY_MILLISECONDS, columns
from smart_fork.agents.opencode.database import Json, has, opened
from smart_fork.cuts.model import Stamp
from smart_fork.errors import ForkRefused, NotFound

#: A table, and a row of it by its columns.
Row = tuple[str, dict[str, Any]]
_DEPTH = 16
_BUSY = "OpenCode has its database open"


def lines_of(path: Path) -> list[bytes]:
    """The lines of the session that is this log.

    Raises:
        NotFound: it is not there.
        OSError: the database cannot be read.
    """
    with opened(path.parent) as db:
        return _lines(db, path)


def there(path: Path) -> bool:
    """Whether this session is in its database."""
    with opened(path.parent) as db:
        return has(db, path.name)


def stamp_of_lines(path: Path, lines: Iterable[bytes]) -> Stamp:
    """What tells that a session still has these lines."""
    size, digest = 0, blake2b(digest_size=7)
    for line in lines:
        size += len(line) + 1
        digest.update(line + b"\n")
    return Stamp(size, int.from_bytes(digest.digest()), path.parent.stat().st_ino)


def write(path: Path, lines: Iterable[bytes], expected: Stamp | None) -> None:
    """Give a session these rows and no others, in one transaction; no line takes all that it has.

    Nothing of what goes is left in the file, or in what SQLite keeps beside it.

    Raises:
        ForkRefused: OpenCode has the database open, or the session is not as `expected`.
        OSError: it is as it was.
    """
    wanted = [row for line in lines if line.strip() for row in _rows_in(orjson.loads(line))]
    with _alone(path.parent) as db:
        now = _lines(db, path) if expected is not None else _there(db, path)
        if expected is not None and stamp_of_lines(path, now) != expected:
            raise ForkRefused(f"The session changed during reading: {path.name}", "Try again.")
        _change(db, [row for line in now for row in _rows_in(orjson.loads(line))], wanted)
        db.execute("COMMIT")
        _overwrite(db)


def overwrite(path: Path) -> None:
    """Finish what a killed `write` has begun: nothing of what went is left in the file.

    Raises:
        ForkRefused: OpenCode has the database open.
        OSError: it cannot be written.
    """
    with _alone(path.parent) as db:
        db.execute("COMMIT")
        _overwrite(db)


@contextmanager
def _alone(path: Path) -> Iterator[apsw.Connection]:
    """The database in a transaction, which nobody else has open."""
    try:
        with closing(apsw.Connection(str(path.resolve()), flags=apsw.SQLITE_OPEN_READWRITE)) as db:
            db.set_busy_timeout(BUSY_MILLISECONDS)
            db.execute("PRAGMA trusted_schema = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA secure_delete = ON")
            db.execute("BEGIN EXCLUSIVE")
            yield db
    except (apsw.BusyError, apsw.LockedError) as error:
        raise ForkRefused(_BUSY, "Close OpenCode, also its server, and try again.") from error
    except apsw.Error as error:
        raise OSError(f"{path} cannot be written: {error}") from error


def _overwrite(db: apsw.Connection) -> None:
    """Write all pages again: OpenCode itself leaves what it has deleted in pages that are free."""
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _change(db: apsw.Connection, now: Sequence[Row], wanted: Sequence[Row]) -> None:
    if db.execute("SELECT 1 FROM sqlite_schema WHERE type = 'trigger' OR sql LIKE 'CREATE VIRTUAL%'").get:
        raise OSError("the format of the database is newer")
    keys = {name: _key_columns(db, name) for name in {name for name, _ in (*now, *wanted)}}
    before = {(name, *(row[one] for one in keys[name])): row for name, row in now}
    after = {(name, *(row[one] for one in keys[name])): row for name, row in wanted}
    for name, *values in before.keys() - after.keys():
        db.execute(f"DELETE FROM {_quoted(name)} WHERE {_all_are(keys[name])}", values)  # noqa: S608 - of its schema
    for (name, *values), row in after.items():
        was = before.get((name, *values))
        if was is None:
            names, places = ", ".join(map(_quoted, row)), ", ".join("?" * len(row))
            db.execute(f"INSERT INTO {_quoted(name)} ({names}) VALUES ({places})", tuple(row.values()))  # noqa: S608
        elif was != row:
            changes = ", ".join(f"{_quoted(one)} = ?" for one in row)
            told = f"UPDATE {_quoted(name)} SET {changes} WHERE {_all_are(keys[name])}"  # noqa: S608
            db.execute(told, (*row.values(), *values))


def _all_are(names: Iterable[str]) -> str:
    return " AND ".join(f"{_quoted(one)} IS ?" for one in names)


def _key_columns(db: apsw.Connection, table: str) -> list[str]:
    found = db.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall()
    return [str(name) for name, key in found if key] or [str(name) for name, _ in found]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# From rows to lines, and back


def _lines(db: apsw.Connection, path: Path) -> list[bytes]:
    found = _session(db, path.name, 0)
    if found is None:
        raise NotFound(f"No such transcript: {path}")
    messages, agents = found.pop("messages"), found.pop("agents")
    return [orjson.dumps(one) for one in (found, *messages, *agents)]


def _there(db: apsw.Connection, path: Path) -> list[bytes]:
    try:
        return _lines(db, path)
    except NotFound:
        return []


def _session(db: apsw.Connection, key: str, depth: int) -> Json | None:
    """A session with all that it has; `None` where there is none."""
    row = next(iter(_table(db, "session", "id", key)), None)
    if row is None:
        return None
    events: dict[str, list[Json]] = {}
    for event in _table(db, "event", "aggregate_id", key):
        events.setdefault(_message_of(event), []).append(event)
    parts: dict[object, list[Json]] = {}
    for part in sorted(_table(db, "part", "session_id", key), key=lambda one: one["row"]["id"]):
        parts.setdefault(part["row"]["message_id"], []).append(part)
    said = sorted(_table(db, "message", "session_id", key), key=_place)
    ids = [one["row"]["id"] for one in said]
    messages = [
        {"info": one, "parts": parts.pop(identity, []), "events": events.pop(identity, [])}
        for identity, one in zip(ids, said, strict=True)
    ]
    left = [one for some in parts.values() for one in some]
    rest = [one for some in events.values() for one in some]
    more = {name: rows for name in _others(db) if (rows := _table(db, name, "session_id", key))}
    below = [row[0] for row in db.execute("SELECT id FROM session WHERE parent_id = ? ORDER BY id", (key,))]
    agents = [one for name in below if depth < _DEPTH and (one := _session(db, str(name), depth + 1))]
    return {"session": row, "more": more, "loose": left, "events": rest, "messages": messages, "agents": agents}


def _place(message: Json) -> tuple[int, str]:
    return message["row"]["time_created"], message["row"]["id"]


def _others(db: apsw.Connection) -> list[str]:
    """The other tables that have rows of a session."""
    tables = [str(row[0]) for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    known = ("message", "part", "session", "event")
    return [one for one in tables if one not in known and "session_id" in columns(db, one)]


def _table(db: apsw.Connection, table: str, column: str, value: str) -> list[Json]:
    names = columns(db, table)
    if column not in names:
        return []
    rows = db.execute(f"SELECT * FROM {_quoted(table)} WHERE {_quoted(column)} = ?", (value,))  # noqa: S608 - of its schema
    return [_spelled(dict(zip(names, row, strict=True))) for row in rows]


def _spelled(row: dict[str, Any]) -> Json:
    """A row as JSON, whose data is decoded where it is written again as it is."""
    if any(isinstance(value, bytes) for value in row.values()):
        raise OSError("the format of the database is newer")
    value = _decoded(data := row.get("data"))
    if not value or "row" in value:
        return {"row": row}
    is_same = orjson.dumps(value).decode() == data
    return {**value, "row": {name: one for name, one in row.items() if name != "data" or not is_same}}


def _decoded(data: object) -> Json:
    return dict_in(json_in(data)) if isinstance(data, str) else {}


def _message_of(event: Json) -> str:
    """The message that an event is about; empty where it is about the session."""
    named = (event.get("messageID"), dict_in(event.get("part")).get("messageID"), dict_in(event.get("info")).get("id"))
    return next((one for one in named if isinstance(one, str) and one.startswith("msg_")), "")


def _rows_in(line: Mapping[str, Any]) -> Iterator[Row]:
    """The rows that a line has."""
    for name in ("session", "info"):
        if name in line:
            yield ("session" if name == "session" else "message"), _row(line[name])
    for name, table in (("parts", "part"), ("loose", "part"), ("events", "event")):
        yield from ((table, _row(one)) for one in dicts_in(line.get(name)))
    for table, rows in dict_in(line.get("more")).items():
        yield from ((table, _row(one)) for one in rows)
    for name in ("messages", "agents"):
        for one in dicts_in(line.get(name)):
            yield from _rows_in(one)


def _row(spelled: Mapping[str, Any]) -> dict[str, Any]:
    row = dict(spelled["row"])
    value = {name: one for name, one in spelled.items() if name != "row"}
    return row | {"data": orjson.dumps(value).decode()} if value != _decoded(row.get("data")) else row
