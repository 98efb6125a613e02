"""The server's side of a push: append records to a session, if it still has the records that the client expects.

Checks that do not need the session run before the transaction. In the transaction, one ``UPDATE`` compares the
session's state with the expected one and sets the new one. So if two pushes expect the same state, the second one
fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from smart_fork.errors import Conflict, TooLarge, Unshareable, Withdrawn
from smart_fork.sharing import canonical
from smart_fork.team.segments import unpack
from smart_fork.team.server import audit_log, segment_store, sessions, withdrawal_log
from smart_fork.team.server.auth import MemberProject, Person
from smart_fork.team.server.database import Connection, Database
from smart_fork.team.server.search import store_offered_vectors
from smart_fork.team.server.sessions import Row, add_usage
from smart_fork.team.wire import Push, Pushed

#: Checks that an agent (the first argument) can read these records; raises `Unshareable` if not.
Readable = Callable[[str, Sequence[bytes]], object]


@dataclass(frozen=True, slots=True)
class CheckedPush:
    """A push after the check of its segments (blocks of records).

    `sent` has the segments that came inside the push message: their bytes and records, by digest.
    """

    push: Push
    sent: dict[str, tuple[bytes, list[bytes]]]


def check_bodies(push: Push) -> CheckedPush:
    """Check the segments (blocks of records) that came inside a push message. The database is not needed.

    Raises:
        Unshareable: a segment is damaged, not in canonical form, or not named by the push.
        TooLarge: the session would have too many records.
    """
    sent = {one.digest: (one.body, unpack(one.body, one.digest)) for one in push.bodies}
    if unnamed := [digest for digest in sent if all(digest != place.digest for place in push.segments)]:
        raise Unshareable(f"The push has an unnamed segment: {unnamed[0]}")
    if push.count > canonical.LIMITS.session_records:
        raise TooLarge(f"A session has {push.count} records; at most {canonical.LIMITS.session_records} are allowed.")
    return CheckedPush(push, sent)


def push(
    database: Database,
    project: MemberProject,
    person: Person,
    checked: CheckedPush,
    *,
    readable: Readable | None = None,
) -> Pushed:
    """Append records to a session, or create the session. `readable` checks that an agent can read the records.

    Raises:
        NotFound: the session is another user's.
        Conflict: the session has other records than the push expects.
        Withdrawn: some of the new records were withdrawn (removed by their owner) before.
        Unshareable: the records do not match the digests, or are not `readable`.
        TooLarge: the session or the project would be too large.
    """
    wanted = checked.push
    project.needs("writer")
    fresh: list[bytes] = []
    if wanted.segments:
        with database.transaction(person.id) as db:
            named = _records(db, project, person, checked)
            _verify(named, wanted)
            fresh = _new_records(named, wanted)
            if readable and fresh:
                _check_readable(db, project, wanted, named, fresh, readable)
    elif (wanted.count, wanted.digest) != (wanted.base_count, wanted.base_digest):
        raise Unshareable("The push names no segments for its records.")
    try:
        return _commit(database, project, person, checked, fresh=fresh)
    except Withdrawn:
        with database.transaction(person.id) as db:  # what was sent for it does not wait to be swept
            withdrawal_log.block_pushes(db, project.id)
            segment_store.delete_unreferenced(db, project.id, [place.digest for place in wanted.segments])
        raise


def _commit(
    database: Database, project: MemberProject, person: Person, checked: CheckedPush, *, fresh: list[bytes]
) -> Pushed:
    wanted = checked.push
    with database.transaction(person.id) as db:
        withdrawal_log.block_withdrawals(db, project.id)
        withdrawal_log.refuse_withdrawn(db, project.id, fresh)
        for digest, (body, records) in sorted(checked.sent.items()):  # in one order, so that nobody waits in a circle
            segment_store.store_upload(db, project, person, digest, body, records)
        outcome = _appended(db, project, person, wanted) or _unchanged(db, project, person, wanted)
        if not outcome.up_to_date:
            audit_log.add_line(db, person, "push", project.id, wanted.id)
            if wanted.vectors is not None:
                store_offered_vectors(db, person, project.id, wanted.id, wanted.vectors)
        return outcome


def _records(db: Connection, project: MemberProject, person: Person, checked: CheckedPush) -> dict[str, list[bytes]]:
    """Return the records of each segment (block of records) that the push names, by the segment's digest.

    A segment may have come inside the push, was sent before, or belongs to a session that the user may read.
    """
    named = [place.digest for place in checked.push.segments]
    there = [digest for digest in dict.fromkeys(named) if digest not in checked.sent]
    if lacking := set(there) - set(segment_store.known_segments(db, project, person, there)):
        raise Unshareable(f"A segment was not sent: {min(lacking)}", "Push again")
    found = {digest: records for digest, (_, records) in checked.sent.items()}
    return found | {digest: segment_store.records_of(db, project.id, digest) for digest in there}


def _new_records(records: dict[str, list[bytes]], wanted: Push) -> list[bytes]:
    """Return the pushed records that the session lacks: the first segment may begin with records that it has."""
    base = wanted.base_count
    return [
        line
        for place in wanted.segments
        for number, line in enumerate(records[place.digest], place.first_record)
        if number >= base
    ]


def _check_readable(  # noqa: PLR0917 - all that it takes to look at what comes before
    db: Connection, project: MemberProject, wanted: Push, named: dict[str, list[bytes]], fresh: list[bytes],
    readable: Readable,
) -> None:  # fmt: skip
    """Check that the agent can read the new records `fresh`.

    Alone they can be read if they begin with a prompt after a finished turn. Else earlier records are read with them.
    """
    try:
        readable(wanted.agent, fresh)
    except Unshareable:
        if not wanted.base_count:
            raise
        stored = sessions.records(db, project.id, wanted.id, wanted.position)
        sent = [line for place in wanted.segments for line in named[place.digest]]
        readable(wanted.agent, [*[*stored, *sent][: wanted.base_count], *fresh])


def _verify(records: dict[str, list[bytes]], wanted: Push) -> None:
    """Check that the digest of the session's old state and the pushed records give the digest of the new state.

    Also check that the segments (blocks of records) have the announced sizes and follow each other.
    """
    places = wanted.segments
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
        for state in canonical.chain_states(records[place.digest], place.chain_start):
            number += 1
            if number in (wanted.base_count, place.end):
                known[number] = state
    if number != wanted.count or canonical.digest_of_state(state) != wanted.digest:
        raise Unshareable("The records do not match the push's digest.")
    base = known.get(wanted.base_count)
    if base is None or canonical.digest_of_state(base) != wanted.base_digest:
        raise Unshareable("The records of the push do not follow its base.")


def _appended(db: Connection, project: MemberProject, person: Person, wanted: Push) -> Pushed | None:
    """Append the pushed records to the session, or create the session. Return the answer to the push.

    Return `None` if the session is not in the state that the push expects.
    """
    made = None
    if wanted.base_count == 0 and wanted.base_digest == canonical.digest_of_state(canonical.START) and wanted.count:
        made = _insert(db, project, person, wanted)
    row = made
    if made is None and wanted.count > wanted.base_count:  # also one of which all was withdrawn
        row = _update_state(db, project, person, wanted)
    if row is None:
        return None
    _check_position(db, project, wanted, base=int(row["base_count"]))
    before = sessions.put_places(db, project.id, wanted.id, wanted.segments, wanted.position)
    segment_store.delete_unreferenced(db, project.id, before)
    _count(db, project, person, wanted, before=int(row["bytes"]))
    now = sessions.readable(db, project.key, person, wanted.id)
    return Pushed(session=sessions.session_info(now), created=made is not None, up_to_date=False)


def _insert(db: Connection, project: MemberProject, person: Person, wanted: Push) -> Row | None:
    visibility = sessions.VISIBILITIES.index(wanted.visibility or "private")
    return db.execute(
        "INSERT INTO sessions(project_id, id, owner_id, agent, root_id, base_count, base_digest, head_digest,"
        " record_count, visibility, title, tags, summary, meta, last_activity)"
        " VALUES (%s, %s, %s, %s, %s, 0, %s, %s, %s, %s, %s, %s, %s, %s, least(coalesce(%s, now()), now()))"
        " ON CONFLICT (project_id, id) DO NOTHING RETURNING bytes, base_count",
        (
            *(project.id, wanted.id, person.id, wanted.agent, wanted.id),
            *(canonical.START, canonical.state_of(wanted.digest), wanted.count),
            *(visibility, wanted.title or "", list(wanted.tags or ()), wanted.summary or "", *_meta(wanted)),
        ),
    ).fetchone()


def _update_state(db: Connection, project: MemberProject, person: Person, wanted: Push) -> Row | None:
    """Set the session's new state if it has the expected old one. Return its `bytes` and `base_count`, or `None`."""
    return db.execute(
        "UPDATE sessions SET head_digest = %s, record_count = %s, revision = revision + 1, meta = %s,"
        " last_activity = least(coalesce(%s, now()), now())"
        " WHERE project_id = %s AND id = %s AND owner_id = %s AND head_digest = %s AND record_count = %s"
        " AND deleted_at IS NULL RETURNING bytes, base_count",
        (
            *(canonical.state_of(wanted.digest), wanted.count, *_meta(wanted)),
            *(project.id, wanted.id, person.id, canonical.state_of(wanted.base_digest), wanted.base_count),
        ),
    ).fetchone()


def _meta(wanted: Push) -> tuple[Jsonb, datetime | None]:
    return Jsonb(wanted.meta.model_dump(mode="json")), wanted.meta.last_activity


def _check_position(db: Connection, project: MemberProject, wanted: Push, *, base: int) -> None:
    """Check that the pushed segments (blocks of records) follow the session's segments that stay, without a gap.

    The last one that stays must be full, or end with the parent's records, of which there are `base`.
    """
    first = wanted.segments[0]
    before = sessions.places(db, project.id, wanted.id)[: wanted.position]
    end = 0
    if before:
        stays = before[-1]
        end = stays.end if stays.full or stays.end == base else -1
    if first.first_record != end or len(before) < wanted.position:
        raise Unshareable("The segments of the push do not continue the session.", "Push again")


def _count(db: Connection, project: MemberProject, person: Person, wanted: Push, *, before: int) -> None:
    size = sessions.store_size(db, project.id, wanted.id)
    if size > canonical.LIMITS.session_bytes:
        raise TooLarge(f"A session has {size} bytes; at most {canonical.LIMITS.session_bytes} are allowed.")
    add_usage(db, project, person, size - before)


def _unchanged(db: Connection, project: MemberProject, person: Person, wanted: Push) -> Pushed:
    """Return the answer to a push of records that the session already has, or raise `Conflict`."""
    row = sessions.readable(db, project.key, person, wanted.id, own=True)
    if (row["record_count"], canonical.digest_of_state(row["head_digest"])) == (wanted.count, wanted.digest):
        return Pushed(session=sessions.session_info(row), created=False, up_to_date=True)
    raise Conflict(
        f"The remote session has advanced ({wanted.base_count} -> {row['record_count']} records).",
        "smart-fork team status shows each alias with its next command.",
        count=row["record_count"],
        digest=canonical.digest_of_state(row["head_digest"]),
    )
