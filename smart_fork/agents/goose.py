"""Goose: all sessions in one SQLite database, ``~/.local/share/goose/sessions/sessions.db``; each counts as a log.

The format is known from Goose's sources, see ``tests/fixtures/goose/README.md``. A session is read as a record of its
row, then a record for each message. A copy of a session in a file has one such record on each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import orjson

from indexer.json_values import dict_in, dicts_in
from indexer.transcripts.base import UNREAD, Checkpoint, ReadResult
from indexer.transcripts.model import GivenBack, Item, Origin, Session, UsedTool
from smart_fork.agents.decoders import Header, ReadCodec, Record, text_of
from smart_fork.agents.log_adapters import DatabaseAdapter, ReadAdapter, SessionStamp

if TYPE_CHECKING:
    import apsw

#: The estimated size of a message, and the size above which one is not read.
_MESSAGE_BYTES, _MAX_BYTES = 4096, 16 << 20
#: The number of messages that are read for a list.
_GLANCE_MESSAGES = 20
#: Columns that are read. Databases of older versions do not have all of them.
_SESSION = (
    "id", "name", "description", "user_set_name", "session_type", "working_dir", "created_at", "model_config_json",
)  # fmt: skip
_MESSAGE = ("message_id", "role", "created_timestamp", "content_json", "metadata_json")
_NEEDED_COLUMNS = MappingProxyType({
    "sessions": {"id", "working_dir", "created_at", "updated_at"},
    "messages": {"id", "session_id", "role", "content_json", "created_timestamp"},
})  # fmt: skip
#: `strftime` reads both forms of times in these databases.
_STAMPS = """
    SELECT CAST(id AS BLOB), CAST(strftime('%s', updated_at) AS INTEGER),
        (SELECT count(*) FROM messages WHERE session_id = sessions.id),
        (SELECT CAST(max(id) AS INTEGER) FROM messages WHERE session_id = sessions.id)
    FROM sessions WHERE ?1 IN ('', id)
"""
#: How sessions begin, by their type; all others are a person's.
_ORIGINS: dict[object, Origin] = {"sub_agent": "subagent", "scheduled": "automated", "hidden": "automated"}
#: The extension whose tools have no prefix since 1.25.
_DEVELOPER = "developer__"
#: Names of sessions that have none.
_NAMELESS = re.compile(r"(?:New|CLI|ACP) (?:Session|session|Chat|chat)(?: \d+)?")


class GooseCodec(ReadCodec):
    """The decoder of Goose's records."""

    tools = MappingProxyType({"shell": "Bash", "text_editor": "str_replace_editor", "write": "Write", "edit": "Edit"})
    starting = ("subagent", "subagent__execute_task", "delegate")
    shell = "shell"
    not_run = ("The user has declined to run this tool",)

    def decode(self, record: Record) -> Item:
        content = record.get("content")
        parts, calls, results, thoughts = dicts_in(content), [], [], []
        images = sum(one.get("type") == "image" for one in parts)
        for one in parts:
            kind, identity = one.get("type"), str(one.get("id") or "")
            if kind in ("toolRequest", "frontendToolRequest"):
                given = dict_in(one.get("toolCall")).get("value")
                if isinstance(given, dict):
                    name = str(given.get("name") or "").removeprefix(_DEVELOPER)
                    calls.append(UsedTool(identity, name, given.get("arguments")))
            elif kind == "toolResponse":
                output, failed, shown = _output(one.get("toolResult"))
                results.append(GivenBack(identity, output, failed))
                images += shown
            elif kind in ("thinking", "redactedThinking"):
                thoughts.append(str(one.get("thinking") or ""))
        return Item(text_of(content), tuple(calls), tuple(results), tuple(thoughts), images)

    def header(self, record: Record) -> Header | None:
        """Return the place and facts of a record. A message hidden from the person gets the role "system"."""
        if record.get("type") == "session":
            title = record.get("name") or record.get("description")
            given = isinstance(title, str) and not _NAMELESS.fullmatch(title)
            kind = record.get("session_type")
            return Header(
                moment=record.get("created_at"), session_id=record.get("id"), cwd=record.get("working_dir"),
                title=title if given else None, named=given and record.get("user_set_name") == "1",
                model=record.get("model"), origin=_ORIGINS.get(kind) if isinstance(kind, str) else None,
            )  # fmt: skip
        role, content, metadata = record.get("role"), record.get("content"), record.get("metadata")
        if record.get("type") != "message" or role not in ("user", "assistant") or not isinstance(content, list):
            return None
        place = Header(role, record.get("id"), moment=record.get("created"))
        if any(one.get("type") == "conversationCompacted" for one in dicts_in(content)):
            return place._replace(role="system", compacts=True)
        return place if dict_in(metadata).get("userVisible") is not False else place._replace(role="system")


class GooseAdapter(DatabaseAdapter, ReadAdapter):
    """The adapter that finds and reads Goose's sessions."""

    name = "goose"
    resumes = ("goose", "session", "--resume", "--session-id")
    codec = GooseCodec()
    depth = 0
    database = "sessions.db"
    keys = re.compile(r"[A-Za-z0-9_-]{1,128}")
    advice = "try again when no Goose is busy, or update smart-fork"

    def opened(self, path: Path) -> AbstractContextManager[apsw.Connection]:
        from smart_fork.agents.foreign_database import with_tables

        return with_tables(path, _NEEDED_COLUMNS, "a Goose database")

    def stamps(self, db: apsw.Connection, key: str) -> Iterator[SessionStamp]:
        """Yield the id, size and last change of each session, whose nanoseconds are the id of the last message."""
        for identity, changed, messages, last in db.execute(_STAMPS, (key,)):
            name = identity.decode("utf-8", "replace") if isinstance(identity, bytes) else ""
            if self.keys.fullmatch(name):
                moment = changed if isinstance(changed, int) and 0 <= changed < 1 << 32 else 0
                yield SessionStamp(name, messages * _MESSAGE_BYTES, moment * 10**9 + (last or 0) % 10**9)

    def has(self, db: apsw.Connection, key: str) -> bool:
        return db.execute("SELECT 1 FROM sessions WHERE id = ?", (key,)).get is not None

    def exported(self, path: Path) -> bytes:
        return b"".join(orjson.dumps(one, option=orjson.OPT_APPEND_NEWLINE) for one in self.records(path))

    def records(self, path: Path, most: int = -1) -> Iterator[Record]:
        """Yield a session's records, with at most `most` messages (-1: all). A message id that repeats becomes `None`.

        Raises:
            OSError: The database cannot be read, or does not have the session.
        """
        with self.opened(path.parent) as db:
            row = next(_rows(db, "sessions", _SESSION, "WHERE id = ?", path.name), None)
            if row is None:
                raise FileNotFoundError(f"no such session: {path}")
            model = dict_in(_decoded(row.pop("model_config_json", None)))
            yield {"type": "session", **row, "model": model.get("model_name")}
            seen: set[str | None] = set()
            for one in _rows(db, "messages", _MESSAGE, f"WHERE session_id = ? ORDER BY id LIMIT {most}", path.name):
                identity = one.get("message_id")
                yield {
                    "type": "message", "id": None if identity in seen else identity, "role": one.get("role"),
                    "created": one.get("created_timestamp"), "content": _decoded(one.get("content_json")),
                    "metadata": _decoded(one.get("metadata_json")),
                }  # fmt: skip
                seen.add(identity)

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        if not path.parent.is_file():
            return super().read(path, checkpoint, keep_raw=keep_raw)
        from smart_fork.agents.read_only_reader import read_records

        return read_records(self, path, self.records(path), UNREAD, keep_raw=keep_raw)

    def glance(self, path: Path) -> Session | None:
        if not path.parent.is_file():
            return super().glance(path)
        from smart_fork.agents.read_only_reader import read_records

        return read_records(self, path, self.records(path, _GLANCE_MESSAGES), UNREAD).session


def _rows(
    db: apsw.Connection, table: str, names: tuple[str, ...], of: str, key: str
) -> Iterator[dict[str, str | None]]:
    """Yield the rows that the SQL clause `of` selects with `key`, as texts by column; a too long text is `None`."""
    from smart_fork.agents.foreign_database import columns

    there = columns(db, table)
    names = tuple(name for name in names if name in there)
    values = (f"CASE WHEN octet_length({name}) <= {_MAX_BYTES} THEN CAST({name} AS BLOB) END" for name in names)
    for row in db.execute(f"SELECT {', '.join(values)} FROM {table} {of}", (key,)):  # noqa: S608 - constants
        yield dict(
            zip(names, (None if value is None else value.decode("utf-8", "replace") for value in row), strict=True)
        )


def _decoded(text: str | None) -> object:
    """Return the value of a JSON text; `None` if it is no JSON, or is nested too deeply to be encoded again."""
    try:
        orjson.dumps(value := orjson.loads(text or "null"))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return value


def _output(result: object) -> tuple[str, bool, int]:
    """Return the text of a tool result, True if the call failed, and the number of images, as the model gets them."""
    value = dict_in(result).get("value")
    if value is None:
        return str(dict_in(result).get("error") or ""), True, 0
    failed = dict_in(value).get("isError") is True
    parts = dicts_in(value.get("content") if isinstance(value, dict) else value)
    parts = [one for one in parts if dict_in(one.get("annotations")).get("audience") != ["user"]]
    return text_of(parts), failed, sum(one.get("type") == "image" for one in parts)
