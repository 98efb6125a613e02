"""Withdrawals: digests that may not be pushed again, who must be notified, and the lock that serializes changes.

Of a record that was taken out its digest alone is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from uuid import UUID

from psycopg.types.json import Jsonb

from smart_fork.errors import Withdrawn
from smart_fork.team import wire
from smart_fork.team.segments import unpack
from smart_fork.team.server import segments
from smart_fork.team.server.auth import Person
from smart_fork.team.server.database import Connection

#: Withdrawals told at once.
PAGE = 50
#: Edits by digest: what stands in the place of a record, or nothing.
Digests = Mapping[bytes, bytes | None]
#: Whoever takes the next number of a withdrawal holds this lock until it is written: no smaller one appears later.
_NUMBERS = 0x5F0_4B6


def share(db: Connection, project_id: int) -> None:
    """Let nothing be withdrawn in a project until this transaction ends; others may push meanwhile."""
    db.execute("SELECT pg_advisory_xact_lock_shared(hashtextextended('smartfork project ' || %s, 0))", (project_id,))


def alone(db: Connection, project_id: int) -> None:
    """Wait until nobody pushes or branches in a project, and let nobody until this transaction ends."""
    db.execute("SELECT pg_advisory_xact_lock(hashtextextended('smartfork project ' || %s, 0))", (project_id,))


def refuse(db: Connection, project_id: int, records: Iterable[bytes]) -> None:
    """Refuse records that were withdrawn. One that still stands elsewhere is not: in a session of the pusher's own, or
    in one that he reads and has a copy of, that was not made of what it was withdrawn from. So who pushes a copy of
    somebody's records and withdraws that takes nothing from their author.

    Raises:
        Withdrawn: One was.
    """
    digests = list({sha256(record).digest() for record in records})
    rows = db.execute(
        "SELECT digest, session_id FROM tombstones WHERE project_id = %s AND digest = ANY(%s)", (project_id, digests)
    ).fetchall()
    gone = {row["digest"] for row in rows}
    if gone:
        gone -= _standing(db, project_id, {row["session_id"] for row in rows}, gone)
    if gone:
        raise Withdrawn(
            f"{len(gone)} of these records were withdrawn.",
            "`smart-fork team sync` applies that here. Then push again.",
        )


def _standing(
    db: Connection, project_id: int, withdrawn_from: Collection[UUID], digests: Collection[bytes]
) -> set[bytes]:
    """Those of these records that stand in a session of the asker's that is apart from where they were withdrawn."""
    rows = db.execute(
        "SELECT DISTINCT g.digest FROM session_segments g"
        " WHERE g.project_id = %s AND g.session_id IN (SELECT stands_apart(%s, %s::uuid[]))",
        (project_id, project_id, list(withdrawn_from)),
    ).fetchall()
    found: set[bytes] = set()
    for row in rows:
        name = row["digest"].hex()
        records = unpack(segments.bodies(db, project_id, [name])[name], name)
        found |= {digest for record in records if (digest := sha256(record).digest()) in digests}
        if len(found) == len(digests):
            break
    return found


def bury(db: Connection, project_id: int, session_id: str, digests: Iterable[bytes]) -> None:
    """Let nobody push these records again, which were withdrawn from that session."""
    db.execute(
        "INSERT INTO tombstones(project_id, digest, session_id) SELECT %s, unnest(%s::bytea[]), %s"
        " ON CONFLICT (project_id, digest, session_id) DO NOTHING",
        (project_id, list(digests), session_id),
    )


def note(db: Connection, project_id: int, session_id: str, edits: Digests, *, kind: str, revision: int) -> None:
    """Write down what was withdrawn of a session, for all who have a copy of it."""
    db.execute("SELECT pg_advisory_xact_lock(%s)", (_NUMBERS,))
    told = [[old.hex(), new.hex() if new is not None else None] for old, new in edits.items()]
    db.execute(
        "INSERT INTO rewrites(project_id, session_id, seq, kind, edits, revision)"
        " VALUES (%s, %s, nextval('rewrite_numbers'), %s, %s, %s)",
        (project_id, session_id, kind, Jsonb(told), revision),
    )


def known(db: Connection, project_id: int, session_id: str, revision: int) -> dict[bytes, bytes | None] | None:
    """Return the withdrawals from a session since that revision."""
    row = db.execute(
        "SELECT edits FROM rewrites WHERE project_id = %s AND session_id = %s AND revision = %s",
        (project_id, session_id, revision),
    ).fetchone()
    return None if row is None else _read(row["edits"])


def edits_of(db: Connection, project_id: int, session_id: str) -> dict[bytes, bytes | None]:
    """Return all withdrawals from a session, combined: a replacement may have been replaced as well."""
    rows = db.execute(
        "SELECT edits FROM rewrites WHERE project_id = %s AND session_id = %s ORDER BY seq", (project_id, session_id)
    )
    whole: dict[bytes, bytes | None] = {}
    for row in rows:
        step = _read(row["edits"])
        whole = {old: step.get(new, new) if new is not None else None for old, new in whole.items()} | step
    return whole


def _read(edits: Iterable[tuple[str, str | None]]) -> dict[bytes, bytes | None]:
    return {bytes.fromhex(old): bytes.fromhex(new) if new else None for old, new in edits}


def changes(db: Connection, person: Person, since: int) -> wire.Changes:
    """Return the withdrawals after a bookmark, from the user's sessions and those that the user has copies of."""
    rows = db.execute(
        "SELECT r.seq, r.session_id::text AS session_id, p.key AS project, r.revision, r.kind, r.edits"
        " FROM rewrites r JOIN projects p ON p.id = r.project_id"
        " WHERE r.seq > %(since)s AND (EXISTS (SELECT FROM pulls c WHERE c.project_id = r.project_id"
        " AND c.session_id = r.session_id AND c.user_id = %(me)s)"
        " OR EXISTS (SELECT FROM sessions s WHERE s.project_id = r.project_id"
        " AND s.id = r.session_id AND s.owner_id = %(me)s))"
        " ORDER BY r.seq LIMIT %(page)s",
        {"since": since, "me": person.id, "page": PAGE},
    ).fetchall()
    told = (row | {"edits": tuple(wire.Edit(old=old, new=new) for old, new in row["edits"])} for row in rows)
    found = tuple(wire.Change(**{name: row[name] for name in wire.Change.model_fields}) for row in told)
    return wire.Changes(changes=found, next_page=str(rows[-1]["seq"]) if rows else str(since))
