"""Reading of OpenCode's SQLite database, in one transaction, without writing beside it.

A session is read as one document, ``{"info": …, "messages": [{"info": …, "parts": […]}]}``, which is the form of
``opencode export`` and ``opencode import``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw

from indexer.json_values import json_in
from indexer.transcripts.long_lines import abridged
from smart_fork.agents.decoders import Record
from smart_fork.agents.foreign_database import columns, with_tables
from smart_fork.agents.log_adapters import SessionStamp

#: The ids of sessions. An id is the last part of a log's place.
KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")
#: The size above which a message or a part of it is read with its long texts shortened.
MAX_BYTES = 16 << 20
#: The estimated size of a message in bytes.
_MESSAGE_BYTES = 4096
_NEEDED = {
    "session": ("id", "directory", "title", "time_created", "time_updated", "parent_id"),
    "message": ("id", "session_id", "time_created", "time_updated", "data"),
    "part": ("id", "message_id", "session_id", "data"),
}
#: The names of a session's columns in its document. The columns in `_JSON` hold JSON.
_TEXTS = {
    "id": "id", "slug": "slug", "project_id": "projectID", "workspace_id": "workspaceID", "parent_id": "parentID",
    "directory": "directory", "path": "path", "title": "title", "version": "version", "agent": "agent",
}  # fmt: skip
_JSON = {"revert": "revert", "permission": "permission", "model": "model", "metadata": "metadata"}
_STAMPS = """
    SELECT CAST(id AS BLOB), time_updated,
        (SELECT count(*) FROM message WHERE session_id = session.id),
        (SELECT time_updated FROM message WHERE session_id = session.id ORDER BY time_created DESC, id DESC LIMIT 1)
    FROM session WHERE parent_id IS NULL
"""

#: The column ``data``, or NULL if it is larger than `MAX_BYTES`: then it is read in pieces, by its row id.
_DATA = f"CASE WHEN octet_length(data) <= {MAX_BYTES} THEN CAST(data AS BLOB) END, rowid"
_PIECE = 1 << 20
_MESSAGES = f"""
    SELECT CAST(id AS BLOB), {_DATA} FROM message WHERE session_id = ? ORDER BY time_created, id LIMIT ?
"""  # noqa: S608 - constants
_PARTS = f"SELECT CAST(id AS BLOB), {_DATA} FROM part WHERE message_id = CAST(? AS TEXT) ORDER BY id"  # noqa: S608 - constants


class Broken(NamedTuple):
    """A database row without a JSON object in its text. `number` counts the session's messages from 1."""

    number: int
    reason: str


class Source(NamedTuple):
    """The content of a session: its document, its unreadable rows, and the ids of messages with shortened texts."""

    document: Record | None
    broken: Sequence[Broken] = ()
    abridged: Collection[str] = ()


def opened(path: Path) -> AbstractContextManager[apsw.Connection]:
    """Return a context with a connection that reads OpenCode's database, including its ``-wal`` file.

    Raises:
        OSError: It cannot be opened or read, or is not OpenCode's.
    """
    return with_tables(path, _NEEDED, "an OpenCode database")


def stamps(db: apsw.Connection, key: str = "") -> Iterator[SessionStamp]:
    """Yield the id, estimated size and last change of each session, or of the one called `key`, without sub-agents."""
    if key and not KEY.fullmatch(key):
        return
    one = (" AND id = ?", (key,)) if key else ("", ())
    for identity, updated, messages, last in db.execute(_STAMPS + one[0], one[1]):
        name = _text(identity)
        if KEY.fullmatch(name):
            yield SessionStamp(name, messages * _MESSAGE_BYTES, max(_number(updated), _number(last)) * 1_000_000)


def has(db: apsw.Connection, key: str) -> bool:
    """Return True if the database has a session or a sub-agent's session with this id."""
    return KEY.fullmatch(key) is not None and db.execute("SELECT 1 FROM session WHERE id = ?", (key,)).get is not None


def read_session(db: apsw.Connection, key: str, most: int = -1, *, whole: bool = False) -> Source:
    """Return a session with at most `most` messages (-1: all). Very long texts are shortened unless `whole`."""
    info = _info(db, key) if KEY.fullmatch(key) else None
    if info is None:
        return Source(None)
    broken, abridged = list[Broken](), set[str]()
    messages: list[Record] = []
    rows = db.execute(_MESSAGES, (key, most))
    for number, (identity, data, row) in enumerate(rows, start=1):
        value, reason = decoded(data or _large_data(db, "message", row, whole=whole))
        if value is None:
            broken.append(Broken(number, reason))
            continue
        known = {"id": _text(identity), "sessionID": key}
        parts = []
        abridged |= set() if data else {known["id"]}
        for part, spelled, at in db.execute(_PARTS, (identity,)):
            abridged |= set() if spelled else {known["id"]}
            one, reason = decoded(spelled or _large_data(db, "part", at, whole=whole))
            if one is None:
                broken.append(Broken(number, reason))
            else:
                parts.append(one | {"id": _text(part), "sessionID": key, "messageID": known["id"]})
        messages.append({"info": value | known, "parts": parts})
    return Source({"info": info, "messages": messages}, broken, abridged)


def _large_data(db: apsw.Connection, table: str, row: int, *, whole: bool) -> bytes | None:
    """Return the column ``data`` of a large row, shortened unless `whole`; `None` if it is a number or NULL."""
    try:
        with closing(db.blob_open("main", table, "data", row, writeable=False)) as blob:
            return blob.read() if whole else abridged(iter(partial(blob.read, _PIECE), b""))
    except apsw.Error:  # it is no text at all
        return None


def _info(db: apsw.Connection, key: str) -> Record | None:
    there = columns(db, "session")
    texts = [name for name in (*_TEXTS, *_JSON) if name in there]
    values = ", ".join(f"CAST({name} AS BLOB)" for name in texts)
    row = db.execute(f"SELECT time_created, time_updated, {values} FROM session WHERE id = ?", (key,)).fetchone()  # noqa: S608 - constants
    if row is None:
        return None
    created, updated, *values = row
    info: Record = {}
    for name, value in zip(texts, values, strict=True):
        if value is None:
            continue
        if name in _TEXTS:
            no_path = name == "directory" and b"\0" in value  # without its NUL it would be another one's
            info[_TEXTS[name]] = "" if no_path else _text(value)
        elif (found := json_in(value)) is not None:
            info[_JSON[name]] = found
    return info | {"time": {"created": _number(created), "updated": _number(updated)}}


def decoded(data: bytes | None) -> tuple[Record | None, str]:
    """Return (the JSON object in `data`, ""), or (`None`, reason)."""
    if data is None:
        return None, "larger than any message, or nothing"
    value = json_in(data)
    return (value, "") if isinstance(value, dict) else (None, "not a JSON object")


def _text(value: object) -> str:
    """Return a column's value as text; invalid UTF-8 is replaced, and NUL is removed."""
    if not isinstance(value, bytes):
        return "" if value is None else str(value)
    return value.decode("utf-8", "replace").replace("\0", "")


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 43 else 0


def session_in_file(data: bytes) -> Source:
    """Return the session in the bytes of an exported file, by ``opencode export`` or by smart-fork."""
    value, reason = decoded(data)
    if value is None:
        return Source(None, [Broken(1, reason)])
    info, messages = value.get("info"), value.get("messages")
    if not isinstance(info, dict) or not isinstance(messages, list):
        return Source(None)
    whole = [one for one in messages if _is_message(one)]
    lost = [Broken(number, "not a message") for number, one in enumerate(messages, 1) if not _is_message(one)]
    return Source({"info": info, "messages": whole}, lost)


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("info"), dict):
        return False
    parts = value.get("parts")
    return isinstance(parts, list) and all(isinstance(part, dict) for part in parts)
