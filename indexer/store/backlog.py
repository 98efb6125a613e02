"""Which passages get their vectors next, and how many of the first passages have theirs.

A *first passage* is the one that an exchange begins with: what the person asked, and how the answer begins. A fifth of
all vectors, they find nearly as much as all, and with the last passages of exchanges as much; so those of all sessions
come before the rest of any.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw

#: Whether an exchange begins with the passage of `place`: the one before it is of another exchange, or there is none.
_BEGINS = (
    "NOT EXISTS (SELECT 1 FROM placements AS before WHERE before.session = place.session "
    "AND before.position = place.position - 1 AND before.exchange = place.exchange)"
)
#: Whether an exchange ends with it.
_ENDS = _BEGINS.replace("before", "after").replace("position - 1", "position + 1")


def in_order(
    db: apsw.Connection, current: Iterable[int], limit: int, wanted: Iterable[int] = ()
) -> list[tuple[int, str]]:  # fmt: skip
    """Chunks without a vector as (id, text), one for all that share a text and so a vector: first passages first,
    then last ones. Among these, and among the rest, those of the `current` parts come first, then those of people's
    sessions, the newest first. The chunks that are `wanted` come before all others.
    """
    rows: list[Any] = db.execute(
        f"""
        WITH waiting AS MATERIALIZED (
            SELECT chunks.id, hash, part IN ({_numbers(current)}) AS here, automated,
                chunks.id IN ({_numbers(wanted)}) AS wanted
            FROM chunks INDEXED BY chunks_waiting JOIN parts ON parts.id = part WHERE block = 0
        ), next AS MATERIALIZED (
            SELECT min(waiting.id) AS id,
                max(CASE WHEN session IS NULL THEN 0 WHEN {_BEGINS} THEN 2 ELSE {_ENDS} END) AS rank,
                max(wanted) AS wanted, max(here) AS here, min(waiting.automated) AS automated,
                max(last_activity) AS newest, max(session) AS session, min(position) AS position
            FROM waiting LEFT JOIN placements AS place ON chunk = waiting.id LEFT JOIN sessions ON sessions.id = session
            GROUP BY hash ORDER BY 3 DESC, 2 DESC, 4 DESC, 5, 6 DESC, 7 DESC, 8 LIMIT ?  -- as below
        )
        SELECT id, text FROM next JOIN chunks USING (id)
        ORDER BY wanted DESC, rank DESC, here DESC, next.automated, newest DESC, session DESC, position
        """,  # noqa: S608 - constants and integers
        (limit,),
    ).fetchall()
    return rows


def first_passages(db: apsw.Connection, parts: Iterable[int] | None) -> tuple[int, int]:
    """How many first passages there are, of these parts or of all, and how many of them have their vector."""
    within = "1" if parts is None else f"part IN ({_numbers(parts)})"
    number, embedded = db.execute(
        f"SELECT count(*), coalesce(sum(block <> 0), 0) FROM chunks WHERE {within} "  # noqa: S608 - constants and integers
        f"AND id IN (SELECT chunk FROM placements AS place WHERE {_BEGINS})"
    ).fetchone() or (0, 0)
    return int(number), int(embedded)


def _numbers(parts: Iterable[int]) -> str:
    return ", ".join(str(int(part)) for part in parts)
