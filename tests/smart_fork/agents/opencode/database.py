"""OpenCode's database as the real program has written it (1.18.33, with a model that answers "PONG"), made again.

Its sessions, each by what was done in it: a tool that reads, one that edits and a test run that fails; a fork of that,
as a whole and at a message; a sub-agent; an error; a compaction; what was taken back, and what was said in its place.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).parents[3] / "fixtures/opencode/sessions.sql"
TOOLS = "ses_dfa45c42effeZkFsf7Z5HxbLWf"
FORK = "ses_dfa455d11ffedE5CPqAdmS6pSI"
FORK_AT = "ses_dfa436020ffeGPU731s7tqmA4Y"
WITH_SUBAGENT = "ses_dfa4532bdffeJ2o1UpbTxpwHhp"
FAILED = "ses_dfa44ffb5ffeT7ZdQhIaLB2l4j"
COMPACTED = "ses_dfa43513fffeOxAFpacWkH9L72"
TAKEN_BACK = "ses_dfa4331b4ffey15wR2IWr5Xch9"
SAID_AGAIN = "ses_dfa4301ccffeqEHC1AoFVxrWMj"
ALL = (TOOLS, FORK, FORK_AT, WITH_SUBAGENT, FAILED, COMPACTED, TAKEN_BACK, SAID_AGAIN)


def make(path: Path | None = None) -> Path:
    """The database at its usual place, or at this one."""
    path = path or Path.home() / ".local/share/opencode/opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(FIXTURE.read_text())
        db.commit()
    return path


def change(path: Path, statement: str, *values: object) -> None:
    """As the program changes it."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement, values)
        db.commit()


def take(path: Path, document: dict[str, Any], like: str = TOOLS) -> None:
    """As the program takes a document into its database: a session whose row is else that of another one."""
    session = document["info"]["id"]
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TEMP TABLE taken AS SELECT * FROM session WHERE id = ?", (like,))
        created = document["info"]["time"]["created"]
        db.execute("UPDATE taken SET id = ?, time_created = ?", (session, created))
        db.execute("INSERT INTO session SELECT * FROM taken")
        for message in document["messages"]:
            info = message["info"]
            made = info["time"]["created"]
            db.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?)", (info["id"], session, made, made, json.dumps(info))
            )
            for part in message["parts"]:
                row = (part["id"], info["id"], session, made, made, json.dumps(part))
                db.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
        db.commit()
