"""The store of segments (compressed blocks of records), and the check of who may read them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from hashlib import sha256

from smart_fork.errors import NotFound, Unshareable
from smart_fork.team.segments import Segment, SegmentPlace, unpack
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
    """Store a checked segment (a block of records), and note that this user has sent it."""
    raw = sum(map(len, records)) + len(records)
    _insert(db, project.id, digest, body, records=len(records), raw=raw)
    db.execute(
        "INSERT INTO uploads(project_id, user_id, digest) VALUES (%s, %s, %s)"
        " ON CONFLICT (project_id, user_id, digest) DO UPDATE SET at = now()",
        (project.id, person.id, bytes.fromhex(digest)),
    )


def store_segment(db: Connection, project_id: int, segment: Segment) -> None:
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


def readable_body(db: Connection, project: MemberProject, person: Person, digest: str) -> bytes:
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


def records_of(db: Connection, project_id: int, digest: str) -> list[bytes]:
    """Return the records of a stored segment (a block of records). The user's rights are not checked."""
    return unpack(bodies(db, project_id, [digest])[digest], digest)


def body_reader(db: Connection, project: MemberProject) -> Callable[[SegmentPlace], bytes]:
    """Return a function that reads a segment's compressed bytes by its position."""
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
    """Delete the given segments (blocks of records) and notes of their uploads, but no segment that a session uses."""
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


def delete_unused_containing(db: Connection, project: MemberProject, records: Container[bytes]) -> None:
    """Delete the segments (blocks of records) that no session uses and that contain one of the withdrawn records.

    `records` are the records' digests. Such segments are earlier versions of a session's last segment, or uploads
    without a push.
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
        if any(sha256(one).digest() in records for one in records_of(db, project.id, digest))
    ]
    delete_unreferenced(db, project.id, having)


def delete_old_unused(db: Connection, project_id: int) -> int:
    """Delete segments (blocks of records) that no session uses and that were sent more than 24 hours ago.

    Return their number. They are first locked. Then a second statement checks again that no session uses them, since a
    push may have used one between the two steps.
    """
    db.execute("DELETE FROM uploads WHERE project_id = %s AND at < now() - interval '24 hours'", (project_id,))
    old = [row["digest"] for row in db.execute(_OLD_UNUSED_SEGMENTS, (project_id,))]
    return db.execute(_DELETE_UNUSED, (project_id, old)).rowcount
