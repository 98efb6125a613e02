"""Removal of turns from OpenCode's sessions: for a cut, a message's database rows become one JSON line.

A call and its result are one part of a message, so a cut cannot separate them. While OpenCode has its database open,
cuts are refused: OpenCode would write removed messages again, from its memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from sys import intern
from typing import Any

import apsw
import orjson

from indexer.json_values import dict_in, dicts_in, json_in, text_in
from indexer.safe_files import DISK, Disk
from indexer.transcripts.model import Role
from indexer.transcripts.reader_state import utc
from smart_fork.agents.decoders import Record, only
from smart_fork.agents.excision import titles
from smart_fork.agents.excision.cutter import Cutter, Edits, preview, rewritten, turn_of
from smart_fork.agents.excision.transcript import FileVersion, Transcript, TranscriptTurn
from smart_fork.agents.foreign_database import columns, rewriting
from smart_fork.agents.opencode import HOME
from smart_fork.agents.opencode.database import has, opened
from smart_fork.agents.opencode.session_reader import CODEC, document_at, message_hash, started_agents, text_of
from smart_fork.errors import ForkRefused, NotFound

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}


class OpenCodeCutter(Cutter):
    """Loads OpenCode's sessions, in the database or in an exported file, to remove turns."""

    suffixes = ()

    def detect(self, path: Path) -> bool:
        return path.name.startswith("ses_") and path.parent.is_file()

    def load(self, path: Path, composer: str = "") -> Transcript:
        is_row = self.detect(path)
        lines = lines_of(path) if is_row else list(_lines_in_file(path))
        turns = tuple(_turn(number, line) for number, line in enumerate(lines, start=1))
        return Transcript(
            self.tool, path, path.name, turns, stamp=stamp_of_lines(path, lines) if is_row else super().stamp(path)
        )

    def relinked(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> Edits:
        """Return new lines for answers to removed questions: each names the nearest remaining question before."""
        asked = next((turn.id for turn in turns if turn.role == "user" and turn.id not in gone), "")
        found = {}
        for position, turn in enumerate(turns):
            if turn.id in gone:
                continue
            if turn.role == "user":
                asked = turn.id
            elif turn.parent_id in gone:
                found[position] = rewritten(turn.raw, partial(_with_parent, asked=asked))
        return found

    def without_repetitions(self, session: Transcript, gone: Collection[str]) -> Edits:
        """Return new lines without summaries of file changes, and without a title that quotes removed text."""
        first = next((turn for turn in session.turns if turn.prompt), None)
        said = {one for turn in session.turns if turn.id in gone for one in turn.says}
        next_of, after = dict[str, str](), ""
        for turn in reversed(session.turns):
            if turn.id in gone:
                next_of[turn.id] = after
            elif turn.parent_id is not None or turn.role == "user":
                after = turn.id
        found = {}
        for position, turn in enumerate(session.turns):
            if position and turn.role != "user":
                continue
            untitled = not position and gone and (not said.isdisjoint(turn.says) or (first and first.id in gone))
            raw = rewritten(turn.raw, partial(_remove_repetitions, next_of=next_of, untitled=bool(untitled)))
            if gone and turn.id not in gone and raw != turn.raw:
                found[position] = raw
        return found

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """Return the files with outputs of the `removed` turns that were too long for a message."""
        folder = HOME.of(path) / "tool-output"
        parts = (part for turn in removed for part in dicts_in(orjson.loads(turn.raw).get("parts")))
        named = (dict_in(dict_in(part.get("state")).get("metadata")).get("outputPath") for part in parts)
        found = [Path(one) for one in named if isinstance(one, str)]
        return [one for one in found if one.parent == folder and one.is_file() and not one.is_symlink()]

    def has(self, path: Path) -> bool:
        return exists(path) if self.detect(path) else super().has(path)

    def stamp(self, path: Path, disk: Disk = DISK) -> FileVersion | None:
        if not self.detect(path):
            return super().stamp(path, disk)
        return stamp_of_lines(path, lines_of(path)) if exists(path) else None

    def content(self, path: Path) -> Iterator[bytes]:
        return (line + b"\n" for line in lines_of(path)) if self.detect(path) else super().content(path)

    def begins_with(self, path: Path, before: Iterable[bytes]) -> bool:
        """Return True if the session still has the lines `before`. The first, about the session, may have changed."""
        if not self.detect(path):
            return super().begins_with(path, before)
        return set(b"".join(before).split(b"\n")[1:]) <= {*lines_of(path), b""}

    def replace(self, path: Path, pieces: Iterable[bytes], expected: FileVersion | None, disk: Disk = DISK) -> None:
        if self.detect(path):
            write(path, b"".join(pieces).split(b"\n"), expected)
        else:
            super().replace(path, pieces, expected, disk)

    def remove(self, path: Path) -> None:
        if self.detect(path):
            write(path, (), None)
        else:
            super().remove(path)

    def finish(self, path: Path) -> None:
        if self.detect(path):
            overwrite(path)


def _lines_in_file(path: Path) -> Iterator[bytes]:
    """Yield the lines of a session in an exported file, which smart-fork never changes."""
    try:
        found = document_at(path, whole=True)
    except FileNotFoundError as error:
        raise NotFound(f"No such transcript: {path}") from error
    yield orjson.dumps({"session": {"row": found["info"]}, "events": []})
    for one in found["messages"]:
        yield orjson.dumps({**one, "info": {**one["info"], "row": only(one["info"], ("id",))}, "events": []})


def _turn(number: int, line: bytes) -> TranscriptTurn:
    record = orjson.loads(line)
    if "info" not in record:
        return _session_turn(number, line, record)
    info, parts = record["info"], dicts_in(record["parts"])
    identity, said, item = str(info["row"].get("id")), text_of(parts), CODEC.decode({"parts": parts})
    compacts = info.get("summary") is True or any(part.get("type") == "compaction" for part in parts)
    role = _ROLES.get(text_in(info.get("role")), "system")
    turn = turn_of(
        identity,
        "system" if compacts else role,
        said,
        item,
        prompt=role == "user" and bool(said) and not compacts,
        says=(f"agent:{name}" for _, name in started_agents(parts)),
        parent_id=info["parentID"] if isinstance(info.get("parentID"), str) else None,
        timestamp=utc(dict_in(info.get("time")).get("created")),
        kept=line,
        meta={"compacts": True} if compacts else {},
        key=message_hash(info, parts),
    )
    return replace(turn, tool_calls=(), tool_results=())  # they are one part: nothing has to go together


def _session_turn(number: int, line: bytes, record: dict[str, Any]) -> TranscriptTurn:
    """Return the turn for a line about a session. A sub-agent's session is removed with the call that started it."""
    row = record["session"]["row"]
    shown = preview(text_in(row.get("title")))
    if number > 1:
        return TranscriptTurn(intern(str(row["id"])), preview=shown, kept=line, repeats=(f"agent:{row['id']}",))
    says = titles.mark_of_title(row.get("title"))
    return TranscriptTurn("line-1", preview=shown, kept=line, meta={"needed": "OpenCode"}, says=says)


def _with_parent(record: dict[str, Any], asked: str) -> bool:
    record["info"]["parentID"] = asked
    record["events"] = []
    return True


def _remove_repetitions(record: dict[str, Any], next_of: Mapping[str, str], *, untitled: bool) -> bool:
    """Remove from a record summaries of file changes, events, and if `untitled` the title. Return True if it changed.

    A revert to a removed message then names the message after it, from `next_of`.
    """
    if "info" in record:
        summary = record["info"].get("summary")
        if not isinstance(summary, dict) or not (summary.get("diffs") or summary.get("title") or summary.get("body")):
            return False
        record["info"]["summary"], record["events"] = {"diffs": []}, []
        return True
    row = record["session"]["row"]
    before = dict(row), record["events"]
    if row.get("summary_diffs"):
        row["summary_diffs"] = None
    back = orjson.loads(row.get("revert") or "{}")
    if text_in(dict_in(back).get("messageID")) in next_of:  # what a person has taken back begins with the next one
        first = next_of[back["messageID"]]
        row["revert"] = orjson.dumps({"messageID": first}).decode() if first else None
    if untitled:
        row["title"] = f"New session - {utc(row.get('time_created'))}"
    record["events"] = []
    return (row, record["events"]) != before


#: A table's name, and a row of the table by its columns.
Row = tuple[str, dict[str, Any]]
_DEPTH = 16


def lines_of(path: Path) -> list[bytes]:
    """Return the JSON lines of a session in the database: the session, its messages, then its sub-agents.

    Raises:
        NotFound: The session is not in the database.
        OSError: The database cannot be read.
    """
    with opened(path.parent) as db:
        return _lines(db, path)


def exists(path: Path) -> bool:
    """Return True if the session at `path`, the database's path and an id, is in OpenCode's database."""
    with opened(path.parent) as db:
        return has(db, path.name)


def stamp_of_lines(path: Path, lines: Iterable[bytes]) -> FileVersion:
    """Return the version of a session with these lines, to detect changes."""
    size, digest = 0, blake2b(digest_size=7)
    for line in lines:
        size += len(line) + 1
        digest.update(line + b"\n")
    return FileVersion(size, int.from_bytes(digest.digest()), path.parent.stat().st_ino)


def write(path: Path, lines: Iterable[bytes], expected: FileVersion | None) -> None:
    """Replace a session's database rows by those in `lines`, in one transaction; without lines, delete it.

    Afterwards, no removed text is left in the database or in SQLite's files beside it.

    Raises:
        ForkRefused: OpenCode has the database open, or the session differs from `expected`.
        OSError: Writing failed, and the session is unchanged.
    """
    wanted = [row for line in lines if line.strip() for row in _rows_in(orjson.loads(line))]
    with _exclusive(path.parent) as db:
        now = _lines(db, path) if expected is not None or has(db, path.name) else []
        if expected is not None and stamp_of_lines(path, now) != expected:
            raise ForkRefused(f"The session changed during reading: {path.name}", "Try again.")
        _change(db, [row for line in now for row in _rows_in(orjson.loads(line))], wanted)


def overwrite(path: Path) -> None:
    """Rewrite the database, so that no removed text is left in it after a `write` was killed.

    Raises:
        ForkRefused: OpenCode has the database open.
        OSError: The database cannot be written.
    """
    with _exclusive(path.parent):
        pass


@contextmanager
def _exclusive(path: Path) -> Iterator[apsw.Connection]:
    """Open the database in a transaction; at the end, rewrite all pages, since free ones have deleted text.

    Raises:
        ForkRefused: Another process has the database open.
    """
    try:
        with rewriting(path, alone=True) as db:
            yield db
    except (apsw.BusyError, apsw.LockedError) as error:
        raise ForkRefused(
            "OpenCode has its database open", "Close OpenCode, also its server, and try again."
        ) from error
    except apsw.Error as error:
        raise OSError(f"{path} cannot be written: {error}") from error


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


# Conversion of rows to lines, and back


def _lines(db: apsw.Connection, path: Path) -> list[bytes]:
    found = _session(db, path.name, 0)
    if found is None:
        raise NotFound(f"No such transcript: {path}")
    messages, agents = found.pop("messages"), found.pop("agents")
    return [orjson.dumps(one) for one in (found, *messages, *agents)]


def _session(db: apsw.Connection, key: str, depth: int) -> Record | None:
    """Return the session `key` with its rows, messages, and sub-agents' sessions; `None` if it does not exist."""
    row = next(iter(_table(db, "session", "id", key)), None)
    if row is None:
        return None
    events: dict[str, list[Record]] = {}
    for event in _table(db, "event", "aggregate_id", key):
        events.setdefault(_message_of(event), []).append(event)
    parts: dict[object, list[Record]] = {}
    for part in sorted(_table(db, "part", "session_id", key), key=lambda one: one["row"]["id"]):
        parts.setdefault(part["row"]["message_id"], []).append(part)
    messages = [
        {"info": one, "parts": parts.pop(one["row"]["id"], []), "events": events.pop(one["row"]["id"], [])}
        for one in sorted(
            _table(db, "message", "session_id", key), key=lambda one: (one["row"]["time_created"], one["row"]["id"])
        )
    ]
    left = [one for some in parts.values() for one in some]
    rest = [one for some in events.values() for one in some]
    more = {name: rows for name in _session_tables(db) if (rows := _table(db, name, "session_id", key))}
    below = [row[0] for row in db.execute("SELECT id FROM session WHERE parent_id = ? ORDER BY id", (key,))]
    agents = [one for name in below if depth < _DEPTH and (one := _session(db, str(name), depth + 1))]
    return {"session": row, "more": more, "loose": left, "events": rest, "messages": messages, "agents": agents}


def _session_tables(db: apsw.Connection) -> list[str]:
    """Return the names of tables with a column ``session_id``, except the tables that `_session` reads by name."""
    tables = [str(row[0]) for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    known = ("message", "part", "session", "event")
    return [one for one in tables if one not in known and "session_id" in columns(db, one)]


def _table(db: apsw.Connection, table: str, column: str, value: str) -> list[Record]:
    names = columns(db, table)
    if column not in names:
        return []
    rows = db.execute(f"SELECT * FROM {_quoted(table)} WHERE {_quoted(column)} = ?", (value,))  # noqa: S608 - of its schema
    return [_as_json(dict(zip(names, row, strict=True))) for row in rows]


def _as_json(row: dict[str, Any]) -> Record:
    """Return a row with the JSON text in ``data`` decoded. Keep the text, too, if encoding would not restore it.

    Raises:
        OSError: The row has a value that JSON cannot hold.
    """
    if any(isinstance(value, bytes) for value in row.values()):
        raise OSError("the format of the database is newer")
    value = _decoded(data := row.get("data"))
    if not value or "row" in value:
        return {"row": row}
    is_same = orjson.dumps(value).decode() == data
    return {**value, "row": {name: one for name, one in row.items() if name != "data" or not is_same}}


def _decoded(data: object) -> Record:
    return dict_in(json_in(data)) if isinstance(data, str) else {}


def _message_of(event: Record) -> str:
    """Return the id of the message that an event concerns; empty if it concerns the session."""
    named = (event.get("messageID"), dict_in(event.get("part")).get("messageID"), dict_in(event.get("info")).get("id"))
    return next((one for one in named if isinstance(one, str) and one.startswith("msg_")), "")


def _rows_in(line: Mapping[str, Any]) -> Iterator[Row]:
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
