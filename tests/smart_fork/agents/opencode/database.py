"""OpenCode's database as the real program wrote it (1.18.33, with a model that answers "PONG"), made again for tests.

Its sessions have a reading tool; an edit and a failing test run; a fork of that session as a whole, and a fork at a
message; a sub-agent; an error; a compaction; and messages that were taken back and replaced.
"""

from __future__ import annotations

import json
import shlex
import sqlite3
import sys
from collections.abc import Callable
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


def make(path: Path | None = None, told: Callable[[str], str] = str) -> Path:
    """Make the database at its usual place, or at `path`. `told` changes its rows."""
    path = path or Path.home() / ".local/share/opencode/opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(told(FIXTURE.read_text()))
        db.commit()
    return path


def change(path: Path, statement: str, *values: object) -> None:
    """Change the database as the program does."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement, values)
        db.commit()


def take(path: Path, document: dict[str, Any], like: str = TOOLS) -> None:
    """Import a document into the database as the program does, with the other columns of an existing session."""
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


def program(folder: Path) -> Path:
    """Write a program into a folder that imports documents and deletes sessions as the real program does."""
    folder.mkdir(parents=True, exist_ok=True)
    path, here = folder / "opencode", shlex.quote(str(Path(__file__).parents[4]))
    path.write_text(f'#!/bin/sh\nPYTHONPATH={here} exec {shlex.quote(sys.executable)} -m {__spec__.name} "$@"\n')
    path.chmod(0o755)
    return path


def main(words: list[str]) -> None:
    """Run as that program."""
    path = Path.home() / ".local/share/opencode/opencode.db"
    if words[:1] == ["import"]:
        document = json.loads(Path(words[1]).read_text())
        info = document["info"]
        take(path, document)
        place = "UPDATE session SET directory = ?, title = ?, time_updated = ? WHERE id = ?"
        change(path, place, str(Path.cwd()), info["title"], info["time"]["updated"], info["id"])
    elif words[:2] == ["session", "delete"]:
        for table, column in (("part", "session_id"), ("message", "session_id"), ("session", "id")):
            change(path, f"DELETE FROM {table} WHERE {column} = ?", words[2])  # noqa: S608 - constants
    else:
        sys.stdout.write("  opencode import <file>  import session data\n")


if __name__ == "__main__":
    main(sys.argv[1:])
