"""Whether an index says the same in all its parts. It is only read, through a connection that cannot write.

Each function yields what is wrong, in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import apsw

from indexer.store.schema import BUSY_MILLISECONDS, opening

#: So many faults of a kind are told one by one.
SHOWN = 5
_WORDS = (
    ("chunk_words", "chunks", "passages"), ("session_words", "sessions", "sessions"),
    ("session_work", "sessions", "sessions"),
)  # fmt: skip


@contextmanager
def read_only(path: Path) -> Iterator[apsw.Connection]:
    """The database as it is at one moment, whoever writes to it meanwhile.

    Raises:
        apsw.Error: it cannot be opened.
    """
    with ExitStack() as stack:
        with opening(path):
            db = stack.enter_context(closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)))
            db.set_busy_timeout(BUSY_MILLISECONDS)
            db.execute("BEGIN; SELECT count(*) FROM sqlite_schema")  # it is that moment when something is first read
        yield db


def damage(db: apsw.Connection) -> Iterator[str]:
    """What SQLite finds in its pages, tables, and word indexes (which it has checked itself since 3.44)."""
    try:
        for (said,) in db.execute(f"PRAGMA integrity_check({SHOWN})"):
            if said != "ok":
                yield str(said)
    except apsw.Error as error:  # so damaged that even the check cannot go on
        yield str(error)


def dangling(db: apsw.Connection) -> Iterator[str]:
    """Rows that speak of others that are not there, and passages that no session has."""
    broken: dict[tuple[str, str], int] = {}
    for table, _, other, _ in db.execute("PRAGMA foreign_key_check"):
        broken[str(table), str(other)] = broken.get((str(table), str(other)), 0) + 1
    for (table, other), number in broken.items():
        yield f"{number} rows of {table} point to missing {other}"
    lost = db.execute("SELECT count(*) FROM chunks WHERE id NOT IN (SELECT chunk FROM placements)").get
    if lost:
        yield f"{lost} passages belong to no session"


def words(db: apsw.Connection) -> Iterator[str]:
    """Passages and sessions that cannot be found by words, and words of what is not there.

    Every row of a word index names its part, so that all rows of a part can be listed.
    """
    parts = [part for (part,) in db.execute("SELECT id FROM parts ORDER BY id")]
    for index, table, name in _WORDS:
        for part in parts:
            found = {row for (row,) in db.execute(f"SELECT rowid FROM {index} WHERE {index} MATCH 'part: p{part}'")}  # noqa: S608 - constants and an integer
            there = {row for (row,) in db.execute(f"SELECT id FROM {table} WHERE part = ?", (part,))}  # noqa: S608 - constants
            if missing := there - found:
                yield f"{len(missing)} {name} of part {part} are missing from the word index"
            if surplus := found - there:
                yield f"{index} has words of {len(surplus)} {name} of part {part} that are not there"
