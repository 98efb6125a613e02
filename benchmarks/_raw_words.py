"""SQLite FTS5 and nothing else: one row a log with its raw text, ranked by bm25. A yardstick of benchmarks/peers.py.

python benchmarks/_raw_words.py index DB HOME
python benchmarks/_raw_words.py ask DB MATCH [PROJECT]
"""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

_CWD = re.compile(r'"cwd":\s*"([^"]*)"')


def index(db: sqlite3.Connection, home: Path) -> None:
    """Every log under `home`."""
    db.execute("CREATE VIRTUAL TABLE logs USING fts5(text, path UNINDEXED, cwd UNINDEXED)")
    with db:
        for folder in (home / ".claude/projects", home / ".codex/sessions"):
            for path in sorted(folder.rglob("*.jsonl")):
                text = path.read_text(encoding="utf-8", errors="replace")
                cwd = match[1] if (match := _CWD.search(text)) else ""
                db.execute("INSERT INTO logs VALUES (?, ?, ?)", (text, str(path), cwd))


def ask(db: sqlite3.Connection, match: str, project: str | None) -> None:
    """Print the paths of the best logs."""
    scope, values = ("AND cwd = ?", [project]) if project else ("", [])
    sql = f"SELECT path FROM logs WHERE logs MATCH ? {scope} ORDER BY rank LIMIT 50"  # noqa: S608 - no value in it
    for (path,) in db.execute(sql, [match, *values]):
        print(path)


if __name__ == "__main__":
    with closing(sqlite3.connect(sys.argv[2])) as database:
        if sys.argv[1] == "index":
            index(database, Path(sys.argv[3]))
        else:
            ask(database, sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
