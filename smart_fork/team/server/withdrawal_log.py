"""The log of withdrawals (removals of records by their owners). Withdrawn records cannot be pushed again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from uuid import UUID

from psycopg.types.json import Jsonb

from smart_fork.errors import Withdrawn
from smart_fork.team import wire
from smart_fork.team.server import segment_store
from smart_fork.team.server.auth import Person
from smart_fork.team.server.database import Connection

#: The most withdrawals in one answer.
MAX_WITHDRAWALS = 50


#: The edits of a withdrawal: the digest of each record, with that of its replacement, or `None` if it is removed.
EditsByDigest = Mapping[bytes, bytes | None]


#: The number of the lock that a transaction holds from taking a withdrawal's number until its commit, so that no
#: smaller number appears later.
_NUMBER_LOCK = 0x5F0_4B6


def block_withdrawals(db: Connection, project_id: int) -> None:
    """Block withdrawals in a project until the end of this transaction. Other pushes to the project can still run."""
    db.execute("SELECT pg_advisory_xact_lock_shared(hashtextextended('smartfork project ' || %s, 0))", (project_id,))


def block_pushes(db: Connection, project_id: int) -> None:
    """Wait until no push or branch runs in a project, and block new ones until the end of this transaction."""
    db.execute("SELECT pg_advisory_xact_lock(hashtextextended('smartfork project ' || %s, 0))", (project_id,))


def refuse_withdrawn(db: Connection, project_id: int, records: Iterable[bytes]) -> None:
    """Raise `Withdrawn` if some of the records were withdrawn, unless the user may still push them.

    A withdrawn record is accepted if another session has it too: one that was not made from the session of the
    withdrawal, and that the user owns or has a copy of. So if a user copies another user's records, pushes them, and
    withdraws them, the author can still push them.
    """
    digests = list({sha256(record).digest() for record in records})
    rows = db.execute(
        "SELECT digest, session_id FROM tombstones WHERE project_id = %s AND digest = ANY(%s)", (project_id, digests)
    ).fetchall()
    gone = {row["digest"] for row in rows}
    if gone:
        gone -= _independently_shared(db, project_id, {row["session_id"] for row in rows}, gone)
    if gone:
        raise Withdrawn(
            f"{len(gone)} of these records were withdrawn.",
            "`smart-fork team sync` applies that here. Then push again.",
        )


def _independently_shared(
    db: Connection, project_id: int, withdrawn_from: Collection[UUID], digests: Collection[bytes]
) -> set[bytes]:
    """Return the `digests` of withdrawn records that another session has too, as `refuse_withdrawn` describes.

    `withdrawn_from` are the sessions from which the records were withdrawn.
    """
    rows = db.execute(
        "SELECT DISTINCT g.digest FROM session_segments g"
        " WHERE g.project_id = %s AND g.session_id IN (SELECT stands_apart(%s, %s::uuid[]))",
        (project_id, project_id, list(withdrawn_from)),
    ).fetchall()
    found: set[bytes] = set()
    for row in rows:
        records = segment_store.records_of(db, project_id, row["digest"].hex())
        found |= {digest for record in records if (digest := sha256(record).digest()) in digests}
        if len(found) == len(digests):
            break
    return found


def add_tombstones(db: Connection, project_id: int, session_id: str, digests: Iterable[bytes]) -> None:
    """Store the `digests` of withdrawn records, so that they cannot be pushed again."""
    db.execute(
        "INSERT INTO tombstones(project_id, digest, session_id) SELECT %s, unnest(%s::bytea[]), %s"
        " ON CONFLICT (project_id, digest, session_id) DO NOTHING",
        (project_id, list(digests), session_id),
    )


def store_withdrawal(
    db: Connection, project_id: int, session_id: str, edits: EditsByDigest, *, kind: str, revision: int
) -> None:
    """Store a withdrawal. Machines with copies of the session ask for it later."""
    db.execute("SELECT pg_advisory_xact_lock(%s)", (_NUMBER_LOCK,))
    told = [[old.hex(), new.hex() if new is not None else None] for old, new in edits.items()]
    db.execute(
        "INSERT INTO rewrites(project_id, session_id, seq, kind, edits, revision)"
        " VALUES (%s, %s, nextval('rewrite_numbers'), %s, %s, %s)",
        (project_id, session_id, kind, Jsonb(told), revision),
    )


def withdrawal_of_revision(
    db: Connection, project_id: int, session_id: str, revision: int
) -> dict[bytes, bytes | None] | None:
    """Return the edits of the withdrawal that made this revision of a session; `None` if none did."""
    row = db.execute(
        "SELECT edits FROM rewrites WHERE project_id = %s AND session_id = %s AND revision = %s",
        (project_id, session_id, revision),
    ).fetchone()
    return None if row is None else _decoded(row["edits"])


def all_edits(db: Connection, project_id: int, session_id: str) -> dict[bytes, bytes | None]:
    """Return a map from each withdrawn record's hash to its last replacement's hash, or to `None` if it was removed."""
    rows = db.execute(
        "SELECT edits FROM rewrites WHERE project_id = %s AND session_id = %s ORDER BY seq", (project_id, session_id)
    )
    whole: dict[bytes, bytes | None] = {}
    for row in rows:
        step = _decoded(row["edits"])
        whole = {old: step.get(new, new) if new is not None else None for old, new in whole.items()} | step
    return whole


def _decoded(edits: Iterable[tuple[str, str | None]]) -> dict[bytes, bytes | None]:
    return {bytes.fromhex(old): bytes.fromhex(new) if new else None for old, new in edits}


def withdrawals_since(db: Connection, person: Person, since: int) -> wire.WithdrawnPage:
    """Return a page of the withdrawals with a number above `since`.

    They concern the user's own sessions, and sessions of which the user has a copy.
    """
    rows = db.execute(
        "SELECT r.seq, r.session_id::text AS session_id, p.key AS project, r.revision, r.kind, r.edits"
        " FROM rewrites r JOIN projects p ON p.id = r.project_id"
        " WHERE r.seq > %(since)s AND (EXISTS (SELECT FROM pulls c WHERE c.project_id = r.project_id"
        " AND c.session_id = r.session_id AND c.user_id = %(me)s)"
        " OR EXISTS (SELECT FROM sessions s WHERE s.project_id = r.project_id"
        " AND s.id = r.session_id AND s.owner_id = %(me)s))"
        " ORDER BY r.seq LIMIT %(page)s",
        {"since": since, "me": person.id, "page": MAX_WITHDRAWALS},
    ).fetchall()
    told = (row | {"edits": tuple(wire.RecordEdit(old=old, new=new) for old, new in row["edits"])} for row in rows)
    found = tuple(
        wire.WithdrawnRecords(**{name: row[name] for name in wire.WithdrawnRecords.model_fields}) for row in told
    )
    return wire.WithdrawnPage(changes=found, next_page=str(rows[-1]["seq"]) if rows else str(since))
