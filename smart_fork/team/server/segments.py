"""Segments as they are stored: who may use which, what is missing, taken in and handed out."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from hashlib import sha256

from smart_fork.errors import NotFound, Unshareable
from smart_fork.team.segments import Place, Segment, unpack
from smart_fork.team.server.auth import Person, Project
from smart_fork.team.server.database import Connection

#: Of these segments a person may have the content: they are in a session that he may read.
_READ = (
    "SELECT DISTINCT g.digest FROM session_segments g"
    " JOIN sessions s ON s.project_id = g.project_id AND s.id = g.session_id"
    " WHERE g.project_id = %s AND g.digest = ANY(%s) AND may_read(s, %s)"
)
_SENT = (
    "SELECT u.digest FROM uploads u JOIN segments g ON g.project_id = u.project_id AND g.digest = u.digest"
    " WHERE u.project_id = %s AND u.digest = ANY(%s) AND u.user_id = %s"
)
#: Of no session, and nobody's upload.
_FREE = (
    " NOT EXISTS (SELECT FROM session_segments s WHERE s.project_id = g.project_id AND s.digest = g.digest)"
    " AND NOT EXISTS (SELECT FROM uploads u WHERE u.project_id = g.project_id AND u.digest = g.digest)"
)
_OLD = (
    "SELECT g.digest FROM segments g WHERE g.project_id = %s AND g.created_at < now() - make_interval(hours => %s) AND"  # noqa: S608
    + _FREE
    + " FOR UPDATE SKIP LOCKED"
)
_GONE = "DELETE FROM segments g WHERE g.project_id = %s AND g.digest = ANY(%s) AND" + _FREE  # noqa: S608 - no value of anybody's


def have(db: Connection, project: Project, person: Person, digests: Iterable[str]) -> list[str]:
    """Those of these segments that need not be sent, in their order: a digest is no key to what others keep private."""
    asked = list(dict.fromkeys(digests))
    values = (project.id, [bytes.fromhex(digest) for digest in asked], person.id)
    found = {row["digest"].hex() for statement in (_READ, _SENT) for row in db.execute(statement, values)}
    return [digest for digest in asked if digest in found]


def take(db: Connection, project: Project, person: Person, digest: str, body: bytes, records: Sequence[bytes]) -> None:  # noqa: PLR0917
    """Store a segment that was checked, and that this person has it. Done again it changes nothing."""
    raw = sum(map(len, records)) + len(records)
    _insert(db, project.id, digest, body, records=len(records), raw=raw)
    db.execute(
        "INSERT INTO uploads(project_id, user_id, digest) VALUES (%s, %s, %s)"
        " ON CONFLICT (project_id, user_id, digest) DO UPDATE SET at = now()",
        (project.id, person.id, bytes.fromhex(digest)),
    )


def store(db: Connection, project_id: int, segment: Segment) -> None:
    """Store a segment that was made here: nobody has sent it."""
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


def content(db: Connection, project: Project, person: Person, digest: str) -> bytes:
    """The compressed bytes of a segment that a person may read.

    Raises:
        NotFound: There is none.
    """
    if digest not in have(db, project, person, [digest]):
        raise NotFound(f"Segment not found: {digest}")
    return bodies(db, project.id, [digest])[digest]


def bodies(db: Connection, project_id: int, digests: Iterable[str]) -> dict[str, bytes]:
    """The compressed bytes of segments, whoever may read them."""
    rows = db.execute(
        "SELECT digest, body FROM segments WHERE project_id = %s AND digest = ANY(%s)",
        (project_id, [bytes.fromhex(digest) for digest in digests]),
    )
    return {row["digest"].hex(): row["body"] for row in rows}


def body_of(db: Connection, project: Project) -> Callable[[Place], bytes]:
    """Return a function that reads the compressed bytes of a segment of a project."""
    return lambda place: bodies(db, project.id, [place.digest])[place.digest]


def hold(db: Connection, project_id: int, digests: Iterable[str]) -> None:
    """Let nobody take these segments away until the transaction ends, in which a session gets them.

    Raises:
        Unshareable: One is gone already.
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


def drop(db: Connection, project_id: int, digests: Iterable[str]) -> None:
    """Take away those of these segments that no session has, whoever has sent them."""
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


def drop_unused(db: Connection, project: Project, records: Container[bytes]) -> None:
    """Take away segments of no session that have one of these records, by their digests: earlier versions of one that
    was not full, and what was sent and not committed.
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
    drop(db, project.id, having)


def sweep(db: Connection, project_id: int, hours: float = 24) -> int:
    """Take away segments of no session that were sent so long ago that nobody will commit them; how many.

    They are locked first, and looked at again by a statement that sees what was committed until then: a push may have
    given one to a session while the first statement ran.
    """
    db.execute(
        "DELETE FROM uploads WHERE project_id = %s AND at < now() - make_interval(hours => %s)", (project_id, hours)
    )
    old = [row["digest"] for row in db.execute(_OLD, (project_id, hours))]
    return db.execute(_GONE, (project_id, old)).rowcount
