"""Sessions of OpenCode: read as `opencode export` prints them, written as rows of the one database of a home."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

#: What readers need of OpenCode's own tables.
_TABLES = """
    CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, directory, title, parent_id, time_created, time_updated);
    CREATE TABLE IF NOT EXISTS message (id TEXT PRIMARY KEY, session_id, time_created, time_updated, data);
    CREATE TABLE IF NOT EXISTS part (id TEXT PRIMARY KEY, message_id, session_id, data);
"""


def records(text: bytes) -> Iterator[tuple[float, dict[str, Any], str]]:
    """Yield what is said of a session, then its messages: each with its time and what a person typed in it.

    Nothing of a sub-agent's session is yielded.
    """
    from smart_fork.agents.opencode.database import session_in_file
    from smart_fork.agents.opencode.session_reader import of_document

    document = session_in_file(text).document
    _number((document or {}).get("messages", ()))
    session = of_document(Path("export.json"), document) if document else None
    if document is None or session is None or document["info"].get("parentID"):
        return
    typed = {turn.id: turn.text for turn in session.turns if turn.prompt}
    for record in (document["info"], *document["messages"]):
        info = record.get("info", record)
        yield _created(info) / 1000, record, typed.get(str(info.get("id")), "")


def _number(messages: Sequence[dict[str, Any]]) -> None:
    """Give each message and part an id of its own: where ids looked like secrets, several are called the same."""
    seen = set[str]()
    for number, message in enumerate(messages):
        name = str(message["info"].get("id"))
        message["info"]["id"] = name = f"{name}{number:06}" if name in seen else name
        seen.add(name)
        for place, part in enumerate(message["parts"]):
            part |= {"id": f"{name}{place:06}", "messageID": name}


def _created(info: dict[str, Any]) -> float:
    """Return when a session or message was created, in milliseconds; 0 if it does not say so."""
    times = info.get("time")
    created = times.get("created") if isinstance(times, dict) else 0
    return created if isinstance(created, int | float) else 0


def write(path: Path, content: bytes) -> None:
    """Write a session with these records, one a line, into a database; `path` is `…/opencode.db/ID`."""
    info, *messages = map(json.loads, content.splitlines())
    file, session = path.parent, path.name
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.stat().st_nlink > 1:  # what is kept of it stays as it is
        whole = file.read_bytes()
        file.unlink()
        file.write_bytes(whole)
    times = [_created(one["info"]) for one in messages]
    with closing(sqlite3.connect(file)) as db, db:
        db.executescript(_TABLES)
        row = (session, info.get("directory"), info.get("title"), None, _created(info), max(times, default=0))
        db.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?)", row)
        for one, time in zip(messages, times, strict=True):
            name = f"{one['info']['id']}-{session}"  # other sessions may have one that looked like a secret as well
            row = (name, session, time, time, json.dumps(one["info"]))
            db.execute("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?)", row)
            parts = ((f"{part['id']}-{session}", name, session, json.dumps(part)) for part in one["parts"])
            db.executemany("INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?)", parts)
