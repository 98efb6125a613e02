"""The stored records: segments (compressed blocks of records), the check of who may read them, and withdrawals.

A withdrawal is the removal of records by their owner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from hashlib import sha256
from uuid import UUID

from psycopg.types.json import Jsonb

from smart_fork.errors import NotFound, Unshareable, Withdrawn
from smart_fork.team import wire
from smart_fork.team.records import Segment, SegmentPlace, unpack
from smart_fork.team.server.auth import MemberProject, Person
from smart_fork.team.server.database import Connection

#: Selects the segments that are in a session that the user may read.
_READABLE_SEGMENTS = (
    "SELECT DISTINCT g.digest FROM session_segments g"
    " JOIN sessions s ON s.project_id = g.project_id AND s.id = g.session_id"
    " WHERE g.project_id = %s AND g.digest = ANY(%s) AND may_read(s, %s)"
)
_SENT_SEGMENTS = (
    "SELECT u.digest FROM uploads u JOIN segments g ON g.project_id = u.project_id AND g.digest = u.digest"
    " WHERE u.project_id = %s AND u.digest = ANY(%s) AND u.user_id = %s"
)
#: Is true for a segment that no session uses and that no user's upload names.
_IS_UNUSED = (
    " NOT EXISTS (SELECT FROM session_segments s WHERE s.project_id = g.project_id AND s.digest = g.digest)"
    " AND NOT EXISTS (SELECT FROM uploads u WHERE u.project_id = g.project_id AND u.digest = g.digest)"
)
_OLD_UNUSED_SEGMENTS = (
    "SELECT g.digest FROM segments g WHERE g.project_id = %s AND g.created_at < now() - interval '24 hours' AND"  # noqa: S608
    + _IS_UNUSED
    + " FOR UPDATE SKIP LOCKED"
)
_DELETE_UNUSED = "DELETE FROM segments g WHERE g.project_id = %s AND g.digest = ANY(%s) AND" + _IS_UNUSED  # noqa: S608 - no value of anybody's


def known_segments(db: Connection, project: MemberProject, person: Person, digests: Iterable[str]) -> list[str]:
    """Return the `digests` of segments (blocks of records) that are stored, so that the user need not send them.

    Only segments count that the user has sent, or that are in a session the user may read. The digest of another user's
    private segment gives no access to it.
    """
    asked = list(dict.fromkeys(digests))
    values = (project.id, [bytes.fromhex(digest) for digest in asked], person.id)
    found = {
        row["digest"].hex()
        for statement in (_READABLE_SEGMENTS, _SENT_SEGMENTS)
        for row in db.execute(statement, values)
    }
    return [digest for digest in asked if digest in found]


def store_upload(  # noqa: PLR0917
    db: Connection, project: MemberProject, person: Person, digest: str, body: bytes, records: Sequence[bytes]
) -> None:
    """Store a checked segment (a block of records), and record that this user has sent it now."""
    raw = sum(map(len, records)) + len(records)
    _insert(db, project.id, digest, body, records=len(records), raw=raw)
    db.execute(
        "INSERT INTO uploads(project_id, user_id, digest) VALUES (%s, %s, %s)"
        " ON CONFLICT (project_id, user_id, digest) DO UPDATE SET at = now()",
        (project.id, person.id, bytes.fromhex(digest)),
    )


def store(db: Connection, project_id: int, segment: Segment) -> None:
    """Store a segment (a block of records) that the server made, for example after a withdrawal."""
    place = segment.place
    _insert(db, project_id, place.digest, segment.body, records=place.records, raw=place.raw_bytes)


def _insert(db: Connection, project_id: int, digest: str, body: bytes, *, records: int, raw: int) -> None:
    for _ in range(2):  # once more where it is being swept just now
        db.execute(
            "INSERT INTO segments(project_id, digest, records, raw_bytes, body) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT (project_id, digest) DO NOTHING",
            (project_id, bytes.fromhex(digest), records, raw, body),
        )
        if _held(db, project_id, [bytes.fromhex(digest)]):
            break


def content(db: Connection, project: MemberProject, person: Person, digest: str) -> bytes:
    """Return the compressed bytes of a segment (block of records) that the user may read, or raise `NotFound`."""
    if digest not in known_segments(db, project, person, [digest]):
        raise NotFound(f"Segment not found: {digest}")
    return bodies(db, project.id, [digest])[digest]


def bodies(db: Connection, project_id: int, digests: Iterable[str]) -> dict[str, bytes]:
    """Return the compressed bytes of segments (blocks of records), by digest. The user's rights are not checked."""
    rows = db.execute(
        "SELECT digest, body FROM segments WHERE project_id = %s AND digest = ANY(%s)",
        (project_id, [bytes.fromhex(digest) for digest in digests]),
    )
    return {row["digest"].hex(): row["body"] for row in rows}


def body_of(db: Connection, project: MemberProject) -> Callable[[SegmentPlace], bytes]:
    """Return a function that reads the compressed bytes of a segment (a block of records) at a position."""
    return lambda place: bodies(db, project.id, [place.digest])[place.digest]


def lock_segments(db: Connection, project_id: int, digests: Iterable[str]) -> None:
    """Lock segments (blocks of records) against deletion until the end of the transaction.

    Raise `Unshareable` if one is deleted already.
    """
    wanted = sorted({bytes.fromhex(digest) for digest in digests})
    if len(_held(db, project_id, wanted)) < len(wanted):
        raise Unshareable("A segment was removed meanwhile.", "Push again")


def _held(db: Connection, project_id: int, digests: Sequence[bytes]) -> list[bytes]:
    rows = db.execute(
        "SELECT digest FROM segments WHERE project_id = %s AND digest = ANY(%s) ORDER BY digest FOR KEY SHARE",
        (project_id, list(digests)),
    )
    return [row["digest"] for row in rows]


def delete_unreferenced(db: Connection, project_id: int, digests: Iterable[str]) -> None:
    """Delete those of the given segments (blocks of records) that no session uses, with their uploads' entries."""
    gone = [
        row["digest"]
        for row in db.execute(
            "DELETE FROM segments g WHERE g.project_id = %s AND g.digest = ANY(%s) AND NOT EXISTS"
            " (SELECT FROM session_segments s WHERE s.project_id = g.project_id AND s.digest = g.digest)"
            " RETURNING digest",
            (project_id, [bytes.fromhex(digest) for digest in digests]),
        )
    ]
    db.execute("DELETE FROM uploads WHERE project_id = %s AND digest = ANY(%s)", (project_id, gone))


def delete_unused_with(db: Connection, project: MemberProject, records: Container[bytes]) -> None:
    """Delete the segments (blocks of records) that no session uses and that have a withdrawn record.

    `records` are the digests of the withdrawn records. Such segments are earlier versions of a session's last segment,
    and uploads without a later push.
    """
    unused = [
        row["digest"].hex()
        for row in db.execute(
            "SELECT g.digest FROM segments g WHERE g.project_id = %s AND NOT EXISTS"
            " (SELECT FROM session_segments s WHERE s.project_id = g.project_id AND s.digest = g.digest)",
            (project.id,),
        )
    ]
    having = [
        digest
        for digest in unused
        if any(sha256(one).digest() in records for one in unpack(bodies(db, project.id, [digest])[digest], digest))
    ]
    delete_unreferenced(db, project.id, having)


def sweep(db: Connection, project_id: int) -> int:
    """Delete segments (blocks of records) that no session uses and that were sent more than 24 hours ago.

    Return their number. They are first locked. Then a second statement checks again that no session uses them, since a
    push may have used one between the two steps.
    """
    db.execute("DELETE FROM uploads WHERE project_id = %s AND at < now() - interval '24 hours'", (project_id,))
    old = [row["digest"] for row in db.execute(_OLD_UNUSED_SEGMENTS, (project_id,))]
    return db.execute(_DELETE_UNUSED, (project_id, old)).rowcount


#: The most withdrawals in one answer.
MAX_WITHDRAWALS = 50
#: The edits of a withdrawal: the digest of each record, with that of its replacement, or `None` if it is removed.
EditsByDigest = Mapping[bytes, bytes | None]
#: The number of the lock that a transaction holds from taking a withdrawal's number until its commit, so that no
#: smaller number appears later.
_NUMBER_LOCK = 0x5F0_4B6


def share_project(db: Connection, project_id: int) -> None:
    """Block withdrawals (removals of records by their owner) in a project until the end of this transaction.

    Pushes to the project may run at the same time.
    """
    db.execute("SELECT pg_advisory_xact_lock_shared(hashtextextended('smartfork project ' || %s, 0))", (project_id,))


def lock_project(db: Connection, project_id: int) -> None:
    """Wait until no push or branch runs in a project, and block new ones until the end of this transaction."""
    db.execute("SELECT pg_advisory_xact_lock(hashtextextended('smartfork project ' || %s, 0))", (project_id,))


def refuse_withdrawn(db: Connection, project_id: int, records: Iterable[bytes]) -> None:
    """Raise `Withdrawn` for records that were withdrawn (removed by their owner).

    A record is accepted if an independent session has it too. Such a session was not made from the session of the
    withdrawal. It belongs to the user, or the user may read it and has a copy of it. So if a user pushes a copy of
    another user's records, and withdraws that copy, the author can still push the records.
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
    """Return the `digests` of withdrawn records that are also in a session that `refuse_withdrawn` accepts.

    `withdrawn_from` are the sessions from which the records were withdrawn.
    """
    rows = db.execute(
        "SELECT DISTINCT g.digest FROM session_segments g"
        " WHERE g.project_id = %s AND g.session_id IN (SELECT stands_apart(%s, %s::uuid[]))",
        (project_id, project_id, list(withdrawn_from)),
    ).fetchall()
    found: set[bytes] = set()
    for row in rows:
        name = row["digest"].hex()
        records = unpack(bodies(db, project_id, [name])[name], name)
        found |= {digest for record in records if (digest := sha256(record).digest()) in digests}
        if len(found) == len(digests):
            break
    return found


def add_tombstones(db: Connection, project_id: int, session_id: str, digests: Iterable[bytes]) -> None:
    """Store the `digests` of withdrawn records (removed by their owner), so that they cannot be pushed again."""
    db.execute(
        "INSERT INTO tombstones(project_id, digest, session_id) SELECT %s, unnest(%s::bytea[]), %s"
        " ON CONFLICT (project_id, digest, session_id) DO NOTHING",
        (project_id, list(digests), session_id),
    )


def store_withdrawal(
    db: Connection, project_id: int, session_id: str, edits: EditsByDigest, *, kind: str, revision: int
) -> None:
    """Store a withdrawal (the removal of records by their owner), for the machines with copies to ask for."""
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
    """Return the edits of the withdrawal that made this revision of a session; `None` if none did.

    The edits map the digest of a record to that of its replacement, or to `None` for a removed record.
    """
    row = db.execute(
        "SELECT edits FROM rewrites WHERE project_id = %s AND session_id = %s AND revision = %s",
        (project_id, session_id, revision),
    ).fetchone()
    return None if row is None else _read(row["edits"])


def edits_of(db: Connection, project_id: int, session_id: str) -> dict[bytes, bytes | None]:
    """Return the edits of all withdrawals (removals of records by their owner) from a session as one mapping.

    It maps the digest of a record to that of its last replacement, or to `None` if the record was removed.
    """
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


def changes(db: Connection, person: Person, since: int) -> wire.WithdrawnPage:
    """Return a page of the withdrawals (removals of records by their owner) with a number above `since`.

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
