"""The sessions in the server's database: read, change, branch and delete them, and add up their sizes.

A session's records are stored in segments (blocks of records). A branch or fork is a new session with the first records
of another session. The client sends no records for it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from psycopg import sql
from psycopg.types.json import Jsonb
from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from smart_fork.errors import Conflict, NotFound, TooLarge, Usage, WrongVerb
from smart_fork.sharing import canonical
from smart_fork.team import wire
from smart_fork.team.segments import SegmentPlace, cut_segments, unpack
from smart_fork.team.server import audit_log, segment_store, withdrawal_log
from smart_fork.team.server.auth import MemberProject, Person, project
from smart_fork.team.server.database import Connection, Database
from smart_fork.team.wire import Branch, Pushed, SessionChange, SessionFacts, SessionInfo

#: The most bytes of a push message with its segments. A larger push sends the segments first.
MAX_COMMIT_BYTES = 12 * canonical.MIB
MAX_QUESTION_BYTES = canonical.MIB


class OverQuota(TooLarge):
    """The data would exceed the limit of a user or project. `used` and `limit` are numbers of bytes."""

    code = "over_quota"

    def __init__(self, message: str, hint: str, used: int, limit: int) -> None:
        super().__init__(message, hint)
        self.used, self.limit = used, limit


def add_usage(db: Connection, project: MemberProject, person: Person, more: int) -> None:
    """Add `more` bytes to the stored total sizes of a user's and a project's sessions, or raise `OverQuota`."""
    for table, number, limit, whose in (
        ("users", person.id, canonical.LIMITS.user_bytes, "You"),
        ("projects", project.id, canonical.LIMITS.project_bytes, f"The sessions of {project.key}"),
    ):
        row = db.execute(
            sql.SQL("UPDATE {} SET bytes = bytes + %s WHERE id = %s RETURNING bytes").format(sql.Identifier(table)),
            (more, number),
        ).fetchone()
        if row is not None and more > 0 and row["bytes"] > limit:
            raise OverQuota(
                f"{whose} may have {limit} bytes on this server.", "Delete sessions", row["bytes"] - more, limit
            )


Row = dict[str, Any]
VISIBILITIES = ("private", "public")
#: Selects a session by its project's key and its id.
_SESSION = (
    "SELECT s.*, u.name AS owner, p.key FROM projects p JOIN sessions s ON s.project_id = p.id"
    " JOIN users u ON u.id = s.owner_id WHERE p.key = %s AND s.id = %s"
)


def session_not_found(session_id: str) -> NotFound:
    """Return the error for a session that is missing or that the user may not read. Both have the same text."""
    return NotFound(f"Session not found: {session_id}", wire.NOT_FOUND_HINT)


def readable(db: Connection, key: str, person: Person, session_id: str, *, own: bool = False) -> Row:
    """Return the row of a session that the user may read (with `own`: that the user owns), or raise `NotFound`."""
    values = (key, session_id, person.id, person.id, own)
    row = db.execute(_SESSION + " AND may_read(s, %s) AND (s.owner_id = %s OR NOT %s)", values).fetchone()
    if row is None:
        raise session_not_found(session_id)
    return row


def session_info(row: Row) -> SessionInfo:
    """Return the description of a session as a message of the protocol."""
    own: Row = {
        "project": row["key"],
        **{name: str(row[name]) for name in ("id", "root_id", "parent_id") if row[name]},
        **{name: canonical.digest_of_state(row[name]) for name in ("base_digest", "head_digest")},
        "visibility": VISIBILITIES[row["visibility"]],
        "tags": tuple(row["tags"]),
        "meta": SessionFacts.model_validate(row["meta"], strict=False),
    }
    said: Row = {name: own.get(name, row.get(name)) for name in SessionInfo.model_fields}
    return SessionInfo(**said)


def places(db: Connection, project_id: int, session_id: UUID | str) -> list[SegmentPlace]:
    """Return the positions of a session's segments (blocks of records), in order."""
    rows = db.execute(
        "SELECT digest, first_record, records, raw_bytes, chain_start FROM session_segments"
        " WHERE project_id = %s AND session_id = %s ORDER BY position",
        (project_id, session_id),
    )
    return [SegmentPlace(**row | {"digest": row["digest"].hex()}) for row in rows]


def records(db: Connection, project_id: int, session_id: UUID | str, until: int | None = None) -> list[bytes]:
    """Return the records of a session, or of only its first `until` segments (blocks of records)."""
    there = places(db, project_id, session_id)[:until]
    bodies = segment_store.bodies(db, project_id, (place.digest for place in there))
    return [record for place in there for record in unpack(bodies[place.digest], place.digest)]


def put_places(
    db: Connection, project_id: int, session_id: UUID | str, new: Sequence[SegmentPlace], position: int = 0
) -> list[str]:
    """Replace a session's segments (blocks of records) by those in `new`, from segment number `position` to the end.

    Return the digests of the replaced segments.
    """
    segment_store.lock_segments(db, project_id, (one.digest for one in new))
    gone = db.execute(
        "DELETE FROM session_segments WHERE project_id = %s AND session_id = %s AND position >= %s RETURNING digest",
        (project_id, session_id, position),
    ).fetchall()
    rows = [
        (number, bytes.fromhex(one.digest), one.first_record, one.records, one.raw_bytes, one.chain_start)
        for number, one in enumerate(new, position)
    ]
    if rows:
        db.execute(
            "INSERT INTO session_segments"
            "(project_id, session_id, position, digest, first_record, records, raw_bytes, chain_start)"
            " SELECT %s, %s, * FROM unnest(%s::int[], %s::bytea[], %s::bigint[], %s::int[], %s::bigint[], %s::bytea[])",
            (project_id, session_id, *map(list, zip(*rows, strict=True))),
        )
    return [row["digest"].hex() for row in gone]


def store_size(db: Connection, project_id: int, session_id: UUID | str) -> int:
    """Compute and store the size of a session. Return the size in bytes."""
    row = db.execute(
        "UPDATE sessions s SET bytes = (SELECT coalesce(sum(g.raw_bytes), 0) FROM session_segments g"
        " WHERE g.project_id = s.project_id AND g.session_id = s.id)"
        " WHERE s.project_id = %s AND s.id = %s RETURNING bytes",
        (project_id, session_id),
    ).fetchone()
    return int(row["bytes"]) if row else 0


def owned(db: Connection, key: str, person: Person, session_id: str) -> Row:
    """Return the row of a session, or raise `WrongVerb` if it is not the user's own."""
    row = readable(db, key, person, session_id)
    if row["owner_id"] != person.id:
        raise WrongVerb(wire.NOT_OWNER)
    return row


def change(db: Connection, key: str, person: Person, session_id: str, wanted: SessionChange) -> Row:
    """Change the description or visibility of one of the user's own sessions. Return the session's row."""
    row = owned(db, key, person, session_id)
    visibility = None if wanted.visibility is None else VISIBILITIES.index(wanted.visibility)
    if visibility:  # who has left a project may take back what he has shared there, and no more
        project(db, person, key)
    tags = None if wanted.tags is None else list(wanted.tags)
    db.execute(
        "UPDATE sessions SET visibility = coalesce(%s, visibility), title = coalesce(%s, title),"
        " tags = coalesce(%s, tags), summary = coalesce(%s, summary), revision = revision + 1"
        " WHERE project_id = %s AND id = %s AND owner_id = %s AND deleted_at IS NULL",
        (visibility, wanted.title, tags, wanted.summary, row["project_id"], session_id, person.id),
    )
    return readable(db, key, person, session_id)


def own(db: Connection, key: str, person: Person, session_id: str) -> Row | None:
    """Return the row of one of the user's own sessions, even if it is hidden; `None` if it does not exist."""
    return db.execute(_SESSION + " AND s.owner_id = %s", (key, session_id, person.id)).fetchone()


def delete(db: Connection, key: str, person: Person, session_id: str) -> Row | None:
    """Hide one of the user's own sessions. Return its row, or `None` if it is hidden already. Forks stay visible."""
    row = own(db, key, person, session_id) or owned(db, key, person, session_id)
    return db.execute(
        "UPDATE sessions SET deleted_at = now(), revision = revision + 1"
        " WHERE project_id = %s AND id = %s AND owner_id = %s AND deleted_at IS NULL RETURNING project_id, id",
        (row["project_id"], session_id, person.id),
    ).fetchone()


def _decode_bookmark(bookmark: str) -> tuple[datetime, UUID]:
    """Return the time and id of the session at which the next page of a list begins, from the page's bookmark.

    A bookmark grants no access: the user's right to each session is checked again.
    """
    try:
        at, _, session = base64.b64decode(bookmark, altchars=b"-_", validate=True).decode("ascii").partition(" ")
        return datetime.fromisoformat(at), UUID(session)
    except ValueError:
        raise ValueError("it is not from this server") from None


def _bookmark(row: Row) -> str:
    return base64.urlsafe_b64encode(f"{row['last_activity'].isoformat()} {row['id']}".encode()).decode()


_FilterText = Annotated[str | None, StringConstraints(pattern=r"^[^\x00]*$")]


class SessionFilters(BaseModel, frozen=True):
    """The query string of a request for a list of sessions.

    `root` is the id of the first ancestor, and `id` the beginning of an id. `mine` selects the user's own sessions.
    `page` is a bookmark.
    """

    owner: _FilterText = None
    tag: _FilterText = None
    agent: _FilterText = None
    root: _FilterText = None
    id: _FilterText = None
    mine: bool = False
    limit: Annotated[int, Field(ge=1, le=wire.MAX_PAGE)] = wire.MAX_PAGE
    page: Annotated[tuple[datetime, UUID] | None, BeforeValidator(_decode_bookmark)] = None


_FILTERS: Mapping[str, sql.SQL] = {
    "owner": sql.SQL(" AND s.owner_id = (SELECT u.id FROM users u WHERE u.name = %(owner)s)"),
    "tag": sql.SQL(" AND %(tag)s = ANY(s.tags)"),
    "agent": sql.SQL(" AND s.agent = %(agent)s"),
    "root": sql.SQL(" AND s.root_id::text = %(root)s"),
    "id": sql.SQL(" AND starts_with(s.id::text, %(id)s)"),
    "page": sql.SQL(" AND (s.last_activity, s.id) < (%(at)s::timestamptz, %(before)s::uuid)"),
}


def page(db: Connection, where: MemberProject, person: Person, asked: SessionFilters) -> wire.SessionListPage:
    """Return a page of the project's sessions that the user may read and that match `asked`, newest first."""
    # Public ones and one's own are read from an index each, in their order: a project may have any number of sessions.
    legs = (sql.SQL("s.visibility = 1"), sql.SQL("s.owner_id = %(me)s"))
    values = asked.model_dump() | ({"owner": person.name} if asked.mine else {})
    values |= dict(zip(("at", "before"), asked.page or (), strict=False))
    narrowed = [_FILTERS[name] for name in _FILTERS if values[name] is not None]
    leg = sql.SQL(
        "(SELECT s.id, s.last_activity FROM sessions s WHERE s.project_id = %(project)s AND s.deleted_at IS NULL"
        " AND {}{} ORDER BY s.last_activity DESC, s.id DESC LIMIT %(most)s)"
    )
    rows = db.execute(
        sql.SQL(
            "SELECT s.*, u.name AS owner, %(key)s AS key FROM sessions s JOIN users u ON u.id = s.owner_id"
            " WHERE s.project_id = %(project)s AND s.id IN (SELECT n.id FROM ({}) n) AND may_read(s, %(me)s)"
            " ORDER BY s.last_activity DESC, s.id DESC LIMIT %(most)s"
        ).format(sql.SQL(" UNION ALL ").join(leg.format(one, sql.Composed(narrowed)) for one in legs)),
        values | {"me": person.id, "project": where.id, "key": where.key, "most": asked.limit + 1},
    ).fetchall()
    more = _bookmark(rows[asked.limit - 1]) if len(rows) > asked.limit else None
    return wire.SessionListPage(sessions=tuple(map(session_info, rows[: asked.limit])), next_page=more)


def store_pull(db: Connection, project_id: int, person: Person, session_id: str, revision: int) -> None:
    """Store that a user has a copy of a session, to tell the user about records that its owner later withdraws."""
    db.execute(
        "INSERT INTO pulls(project_id, session_id, user_id, token_id, revision) VALUES (%s, %s, %s, %s, %s)",
        (project_id, session_id, person.id, person.token, revision),
    )


def branch(database: Database, project: MemberProject, person: Person, wanted: Branch) -> Pushed:
    """Create a branch of the user's own session, or a fork of another user's: a session with its first records.

    Raises:
        Usage: the source has fewer records.
        Conflict: another session has the id.
    """
    with database.transaction(person.id) as db:
        withdrawal_log.block_withdrawals(db, project.id)
        source = readable(db, project.key, person, wanted.source_id)
        _right_verb(source, person, wanted)
        project.needs("writer")
        visibility = VISIBILITIES.index(wanted.visibility or "private")
        count = source["record_count"] if wanted.count is None else wanted.count
        if not 1 <= count <= source["record_count"]:
            raise Usage(f"The session has {source['record_count']} records; --at takes 1 to {source['record_count']}.")
        places, digest = _beginning(db, project, source, count)
        size = sum(place.raw_bytes for place in places)
        given = source | wanted.model_dump(include={"title", "tags", "summary"}, exclude_none=True)
        row = db.execute(
            "INSERT INTO sessions(project_id, id, owner_id, agent, root_id, parent_id, base_count, base_digest,"
            " head_digest, record_count, visibility, title, tags, summary, meta, bytes)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (project_id, id) DO NOTHING RETURNING id",
            (
                *(project.id, wanted.id, person.id, source["agent"], source["root_id"], source["id"]),
                *(count, digest, digest, count, visibility, given["title"]),
                *(list(given["tags"]), given["summary"], Jsonb(source["meta"]), size),
            ),
        ).fetchone()
        if row is None:
            return _existing_branch(db, project, person, wanted, count=count, digest=digest)
        put_places(db, project.id, wanted.id, places)
        add_usage(db, project, person, size)
        store_pull(db, project.id, person, wanted.source_id, source["revision"])
        audit_log.add_line(db, person, wanted.verb, project.id, wanted.source_id)
        made = readable(db, project.key, person, wanted.id)
        return Pushed(session=session_info(made), created=True, up_to_date=False)


def _right_verb(source: Row, person: Person, wanted: Branch) -> None:
    own = source["owner_id"] == person.id
    if wanted.verb == "branch" and not own:
        raise WrongVerb(wire.NOT_OWNER)
    if wanted.verb == "fork" and own and not wanted.force:
        raise WrongVerb(wire.IS_OWNER)


def _beginning(db: Connection, project: MemberProject, source: Row, count: int) -> tuple[list[SegmentPlace], bytes]:
    """Return the positions of the segments with the first `count` records of `source`, and these records' digest.

    If the last segment has more records, a shorter one is stored in its place.
    """
    there = places(db, source["project_id"], source["id"])
    kept, part = cut_segments(there, count, segment_store.body_reader(db, project))
    if part is not None:
        segment_store.store_segment(db, project.id, part)
        records = unpack(part.body, part.place.digest)
        return [*kept, part.place], canonical.state_after(records, part.place.chain_start)
    follows = there[len(kept)].chain_start if len(kept) < len(there) else source["head_digest"]
    return kept, bytes(follows)


def _existing_branch(
    db: Connection, project: MemberProject, person: Person, wanted: Branch, *, count: int, digest: bytes
) -> Pushed:
    """Return the branch or fork that an earlier, equal request created. Raise `Conflict` if it is another session."""
    row = readable(db, project.key, person, wanted.id, own=True)
    if (str(row["parent_id"]), row["base_count"], row["base_digest"]) == (wanted.source_id, count, digest):
        return Pushed(session=session_info(row), created=False, up_to_date=True)
    head = canonical.digest_of_state(row["head_digest"])
    raise Conflict("Another session has that id.", count=row["record_count"], digest=head)
