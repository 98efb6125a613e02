"""Branches and forks: a new session with the first records of another, of which none travels."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from smart_fork.errors import Conflict, Usage, WrongVerb
from smart_fork.sharing import wire
from smart_fork.sharing.canonical import state_after, written
from smart_fork.sharing.segments import Place, cut, unpack
from smart_fork.sharing.wire import Branch, Pushed
from smart_fork.teamserver import segments, sessions, withdrawn
from smart_fork.teamserver.auth import Person, Project
from smart_fork.teamserver.database import Connection, Database
from smart_fork.teamserver.limits import account
from smart_fork.teamserver.sessions import Row


def branch(database: Database, project: Project, person: Person, wanted: Branch) -> Pushed:
    """Make a session of a person's own with the first records of another.

    Raises:
        NotFound: The source cannot be read.
        WrongVerb: It is somebody else's and to be branched, or one's own and to be forked; or no writer asks.
        Usage: It has no so many records.
        Conflict: Another session has that id.
    """
    with database.asked_by(person.id) as db:
        withdrawn.share(db, project.id)
        source = sessions.readable(db, project.key, person, wanted.source_id)
        _right_verb(source, person, wanted)
        project.needs("writer")
        visibility = sessions.VISIBILITY.index(wanted.visibility or "private")
        count = source["record_count"] if wanted.count is None else wanted.count
        if not 1 <= count <= source["record_count"]:
            raise Usage(f"The session has {source['record_count']} records; --at takes 1 to {source['record_count']}.")
        places, digest = _beginning(db, project, source, count)
        row = db.execute(
            "INSERT INTO sessions(project_id, id, owner_id, agent, root_id, parent_id, base_count, base_digest,"
            " head_digest, record_count, visibility, title, tags, summary, meta, bytes)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (project_id, id) DO NOTHING RETURNING id",
            (
                *(project.id, wanted.id, person.id, source["agent"], source["root_id"], source["id"]),
                *(count, digest, digest, count, visibility, _or(wanted.title, source["title"])),
                *(list(_or(wanted.tags, source["tags"])), _or(wanted.summary, source["summary"])),
                *(Jsonb(source["meta"]), _size(places)),
            ),
        ).fetchone()
        if row is None:
            return _there(db, project, person, wanted, count=count, digest=digest)
        sessions.put_places(db, project.id, wanted.id, places)
        account(db, project, person, _size(places))
        sessions.note_pull(db, project.id, person, wanted.source_id, source["revision"])
        sessions.note(db, person, wanted.verb, project.id, wanted.source_id)
        made = sessions.readable(db, project.key, person, wanted.id)
        return Pushed(session=sessions.told(made), created=True, up_to_date=False)


def _right_verb(source: Row, person: Person, wanted: Branch) -> None:
    own = source["owner_id"] == person.id
    if wanted.verb == "branch" and not own:
        raise WrongVerb(wire.NOT_YOURS)
    if wanted.verb == "fork" and own and not wanted.force:
        raise WrongVerb(wire.YOURS)


def _beginning(db: Connection, project: Project, source: Row, count: int) -> tuple[list[Place], bytes]:
    """Segments of the first records: those that are the source's, the last of them where it ends earlier, and the
    digest of them all.
    """
    places = sessions.places(db, source["project_id"], source["id"])
    kept, part = cut(places, count, segments.body_of(db, project))
    if part is not None:
        segments.store(db, project.id, part)
        records = unpack(part.body, part.place.digest)
        return [*kept, part.place], state_after(records, part.place.chain_start)
    follows = places[len(kept)].chain_start if len(kept) < len(places) else source["head_digest"]
    return kept, bytes(follows)


def _there(db: Connection, project: Project, person: Person, wanted: Branch, *, count: int, digest: bytes) -> Pushed:
    """The session that is there already, if an answer was lost and this is the same question."""
    row = sessions.readable(db, project.key, person, wanted.id, own=True)
    if (str(row["parent_id"]), row["base_count"], row["base_digest"]) == (wanted.source_id, count, digest):
        return Pushed(session=sessions.told(row), created=False, up_to_date=True)
    raise Conflict("Another session has that id.", count=row["record_count"], digest=written(row["head_digest"]))


def _or(wanted: Any, otherwise: Any) -> Any:
    return otherwise if wanted is None else wanted


def _size(places: list[Place]) -> int:
    return sum(place.raw_bytes for place in places)
