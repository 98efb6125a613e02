"""Pushing: records are appended to a session, if it is as its pusher saw it.

Everything that can be checked without the session is checked before the transaction. In it one `UPDATE` compares and
sets: of two who push on the same base one finds it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from psycopg.types.json import Jsonb

from smart_fork.errors import Conflict, Unshareable, Withdrawn
from smart_fork.sharing.digest import START, state_of, states, written
from smart_fork.sharing.segments import Place, unpack
from smart_fork.sharing.wire import Push
from smart_fork.teamserver import index, segments, sessions, withdrawn
from smart_fork.teamserver.auth import Person, Project
from smart_fork.teamserver.database import Connection, Database
from smart_fork.teamserver.limits import Bounds
from smart_fork.teamserver.sessions import Row


@dataclass(frozen=True, slots=True)
class Checked:
    """A push whose content is what it says: its segments, and the records of those that came with it."""

    push: Push
    places: list[Place]
    sent: dict[str, tuple[bytes, list[bytes]]]

    @property
    def position(self) -> int:
        """Where its segments begin among those of the session."""
        return self.push.segments[0].position if self.push.segments else 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The session after a push."""

    row: Row
    created: bool
    up_to_date: bool
    vectors_dropped: bool = False


def check_bodies(push: Push, bounds: Bounds) -> Checked:
    """Look at all that came with a push; this asks no database.

    Raises:
        Unshareable: Something is damaged, not canonical, or not what it says.
        TooLarge: Something is more than is taken.
    """
    sent = {one.digest: (one.body, segments.checked(one.body, one.digest, bounds)) for one in push.bodies}
    if unnamed := [digest for digest in sent if all(digest != place.digest for place in push.segments)]:
        raise Unshareable(f"The push has an unnamed segment: {unnamed[0]}")
    bounds.session(push.count, 0)
    return Checked(push, sessions.arrived(push.segments), sent)


def push(
    database: Database,
    project: Project,
    person: Person,
    checked: Checked,
    bounds: Bounds,
    *,
    readable: Callable[[str, Sequence[bytes]], object] | None = None,
) -> Outcome:
    """Append to a session, or make it. `readable` looks at the records of an agent, whether it can read them.

    Raises:
        NotFound: It is not this person's.
        Conflict: It is not as the push says that it was.
        Withdrawn: Some of the new records were taken back.
        Unshareable: The records do not lead from the base to the new digest, or are not `readable`.
        TooLarge: It would be more than is taken.
    """
    wanted = checked.push
    project.needs("writer")
    sessions.may_publish(project, wanted.visibility)
    fresh: list[bytes] = []
    if wanted.segments:
        with database.asked_by(person.id) as db:
            named = _records(db, project, person, checked, bounds)
            _verify(named, checked)
            fresh = _fresh(named, checked)
            if readable and fresh:
                _read(fresh, readable, _Before(db, project, checked, bounds, named))
    elif (wanted.count, wanted.digest) != (wanted.base_count, wanted.base_digest):
        raise Unshareable("The push names no segments for its records.")
    try:
        return _commit(database, project, person, checked, bounds, fresh=fresh)
    except Withdrawn:
        with database.asked_by(person.id) as db:  # what was sent for it does not wait to be swept
            withdrawn.alone(db, project.id)
            segments.drop(db, project.id, [place.digest for place in checked.places])
        raise


def _commit(
    database: Database, project: Project, person: Person, checked: Checked, bounds: Bounds, *, fresh: list[bytes]
) -> Outcome:
    wanted = checked.push
    with database.asked_by(person.id) as db:
        withdrawn.share(db, project.id)
        withdrawn.refuse(db, project.id, fresh, bounds.limits)
        for digest, (body, records) in sorted(checked.sent.items()):  # in one order, so that nobody waits in a circle
            raw = sum(map(len, records)) + len(records)
            segments.take(db, project, person, digest, body=body, records=len(records), raw=raw)
        outcome = _appended(db, project, person, checked, bounds) or _as_it_is(db, project, person, wanted)
        if not outcome.up_to_date:
            sessions.note(db, person, "push", project.id, wanted.id)
            if wanted.vectors is not None:
                dropped = not index.offer(db, person, project.id, wanted.id, wanted.vectors)
                return replace(outcome, vectors_dropped=dropped)
        return outcome


def _records(
    db: Connection, project: Project, person: Person, checked: Checked, bounds: Bounds
) -> dict[str, list[bytes]]:
    """The records of every segment that is named: sent now, before, or of a session that its pusher may read."""
    named = [place.digest for place in checked.places]
    there = [digest for digest in dict.fromkeys(named) if digest not in checked.sent]
    if lacking := set(there) - set(segments.have(db, project, person, there)):
        raise Unshareable(f"A segment was not sent: {min(lacking)}", "Push again")
    found = {digest: records for digest, (_, records) in checked.sent.items()}
    for digest in there:
        found[digest] = unpack(segments.bodies(db, project.id, [digest])[digest], digest, bounds.limits)
    return found


def _fresh(records: dict[str, list[bytes]], checked: Checked) -> list[bytes]:
    """The records of the push that its base does not have."""
    base = checked.push.base_count
    return [
        line
        for place in checked.places
        for number, line in enumerate(records[place.digest], place.first_record)
        if number >= base
    ]


@dataclass(frozen=True, slots=True)
class _Before:
    """The records of a session up to its base, of which a push names some."""

    db: Connection
    project: Project
    checked: Checked
    bounds: Bounds
    named: dict[str, list[bytes]]

    def records(self) -> list[bytes]:
        places = sessions.places(self.db, self.project.id, self.checked.push.id)[: self.checked.position]
        bodies = segments.bodies(self.db, self.project.id, [place.digest for place in places])
        stored = [line for place in places for line in unpack(bodies[place.digest], place.digest, self.bounds.limits)]
        named = [line for place in self.checked.places for line in self.named[place.digest]]
        return [*stored, *named][: self.checked.push.base_count]


def _read(fresh: list[bytes], readable: Callable[[str, Sequence[bytes]], object], before: _Before) -> None:
    """Look at what is new, which begins with a prompt where the base ends with a finished turn; else at all."""
    wanted = before.checked.push
    try:
        readable(wanted.agent, fresh)
    except Unshareable:
        if not wanted.base_count:
            raise
        readable(wanted.agent, [*before.records(), *fresh])


def _verify(records: dict[str, list[bytes]], checked: Checked) -> None:
    """Whether the chain goes from where the segments begin through the base to the new digest."""
    wanted, places = checked.push, checked.places
    for place in places:
        lines = records[place.digest]
        if (len(lines), sum(map(len, lines)) + len(lines)) != (place.records, place.raw_bytes):
            raise Unshareable("A segment has a wrong number of records or bytes.")
    if not all(place.full for place in places[:-1]):
        raise Unshareable("A segment ends too early.")
    number, state = places[0].first_record, places[0].chain_start
    known = {number: state}
    for place in places:
        if known.get(place.first_record) != place.chain_start:
            raise Unshareable("A segment does not begin where the one before it ends.")
        for state in states(records[place.digest], place.chain_start):
            number += 1
            if number in (wanted.base_count, place.end):
                known[number] = state
    if number != wanted.count or written(state) != wanted.digest:
        raise Unshareable("The records do not match the push's digest.")
    base = known.get(wanted.base_count)
    if base is None or written(base) != wanted.base_digest:
        raise Unshareable("The records of the push do not follow its base.")


def _appended(db: Connection, project: Project, person: Person, checked: Checked, bounds: Bounds) -> Outcome | None:
    """The session with what is new, or None if it is not as it should be for that."""
    wanted = checked.push
    made = None
    if wanted.base_count == 0 and wanted.base_digest == written(START) and wanted.count:
        made = _made(db, project, person, wanted)
    row = made
    if made is None and wanted.count > wanted.base_count:  # also one of which all was withdrawn
        row = _moved(db, project, person, wanted)
    if row is None:
        return None
    _fits(db, project, checked, base=int(row["base_count"]))
    before = sessions.put_places(db, project.id, wanted.id, checked.places, checked.position)
    for position, place in enumerate(checked.places, checked.position):
        if (
            position in before
        ):  # both begin with the same record, and the chain says that the new one has all of the old
            segments.grown(db, project.id, before[position], place.digest)
    _count(db, project, person, checked, before=int(row["bytes"]), bounds=bounds)
    now = sessions.readable(db, project.key, person, wanted.id)
    return Outcome(now, created=made is not None, up_to_date=False)


def _made(db: Connection, project: Project, person: Person, wanted: Push) -> Row | None:
    visibility = sessions.VISIBILITY.index(wanted.visibility or "private")
    return db.execute(
        "INSERT INTO sessions(project_id, id, owner_id, agent, root_id, base_count, base_digest, head_digest,"
        " record_count, visibility, title, tags, summary, meta, last_activity)"
        " VALUES (%s, %s, %s, %s, %s, 0, %s, %s, %s, %s, %s, %s, %s, %s, least(coalesce(%s, now()), now()))"
        " ON CONFLICT (project_id, id) DO NOTHING RETURNING bytes, base_count",
        (
            *(project.id, wanted.id, person.id, wanted.agent, wanted.id, START, state_of(wanted.digest), wanted.count),
            *(visibility, wanted.title or "", list(wanted.tags or ()), wanted.summary or "", *_meta(wanted)),
        ),
    ).fetchone()


def _moved(db: Connection, project: Project, person: Person, wanted: Push) -> Row | None:
    """Compare and set."""
    return db.execute(
        "UPDATE sessions SET head_digest = %s, record_count = %s, revision = revision + 1, meta = %s,"
        " last_activity = least(coalesce(%s, now()), now())"
        " WHERE project_id = %s AND id = %s AND owner_id = %s AND head_digest = %s AND record_count = %s"
        " AND deleted_at IS NULL RETURNING bytes, base_count",
        (
            *(state_of(wanted.digest), wanted.count, *_meta(wanted)),
            *(project.id, wanted.id, person.id, state_of(wanted.base_digest), wanted.base_count),
        ),
    ).fetchone()


def _meta(wanted: Push) -> tuple[Jsonb, datetime | None]:
    return Jsonb(wanted.meta.model_dump(mode="json")), wanted.meta.last_activity


def _fits(db: Connection, project: Project, checked: Checked, *, base: int) -> None:
    """Whether the segments go on where those that stay end, and leave none of these open but where a fork begins: what
    comes before is another session's segment.
    """
    first = checked.places[0]
    before = db.execute(
        "SELECT digest, first_record, records, raw_bytes, chain_start FROM session_segments"
        " WHERE project_id = %s AND session_id = %s AND position = %s",
        (project.id, checked.push.id, checked.position - 1),
    ).fetchone()
    end = 0
    if before is not None:
        stays = Place("", before["first_record"], before["records"], before["raw_bytes"], before["chain_start"])
        end = stays.end if stays.full or stays.end == base else -1
    if first.first_record != end or (before is None and checked.position):
        raise Unshareable("The segments of the push do not continue the session.", "Push again")


def _count(db: Connection, project: Project, person: Person, checked: Checked, *, before: int, bounds: Bounds) -> None:
    row = db.execute(
        "UPDATE sessions s SET bytes = (SELECT coalesce(sum(g.raw_bytes), 0) FROM session_segments g"
        " WHERE g.project_id = s.project_id AND g.session_id = s.id)"
        " WHERE s.project_id = %s AND s.id = %s RETURNING bytes",
        (project.id, checked.push.id),
    ).fetchone()
    size = int(row["bytes"]) if row else 0
    bounds.session(0, size)
    bounds.account(db, project, person, size - before)


def _as_it_is(db: Connection, project: Project, person: Person, wanted: Push) -> Outcome:
    """The session where nothing was appended: all of it was there (an answer was lost), or it has advanced.

    Raises:
        NotFound: It is not this person's.
        Conflict: It has advanced.
    """
    row = sessions.readable(db, project.key, person, wanted.id, own=True)
    if (row["record_count"], written(row["head_digest"])) == (wanted.count, wanted.digest):
        return Outcome(row, created=False, up_to_date=True)
    raise Conflict(
        f"The remote session has advanced ({wanted.base_count} -> {row['record_count']} records).",
        "smart-fork team status shows each alias with its next command.",
        count=row["record_count"],
        digest=written(row["head_digest"]),
    )
