"""The withdrawal of records: their owner removes them from a session and from all sessions made from it.

Records are found by their digests, also in forks by other users. The session's parent never changes: a user who copies
a session cannot withdraw it from its author. All sessions change in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from psycopg import sql

from smart_fork.agents.excision import titles
from smart_fork.errors import Conflict, Unshareable, Usage, WrongVerb
from smart_fork.sharing import canonical
from smart_fork.team import wire
from smart_fork.team.segments import Segment, SegmentPlace, pack, unpack
from smart_fork.team.server import audit_log, segment_store, sessions, withdrawal_log
from smart_fork.team.server.auth import MemberProject, Person
from smart_fork.team.server.database import Connection, Database
from smart_fork.team.server.sessions import Row
from smart_fork.team.wire import Rewrite, Rewritten

#: The fields of a session's description, with the values that they have after a deletion.
EMPTY_DESCRIPTION: Mapping[str, Any] = {"title": "", "tags": [], "summary": ""}


@dataclass(frozen=True, slots=True)
class Target:
    """A session from which a withdrawal removes records.

    Its first `protected` records stay: they are also in the parent of the session that the owner withdraws from.
    """

    id: str
    owner: int
    protected: int


@dataclass(frozen=True, slots=True)
class WithdrawalWork:
    """One withdrawal: it removes records from the session `session_id` and from all sessions made from it."""

    project: MemberProject
    session_id: str
    kind: str

    def targets(self, db: Connection) -> list[Target]:
        """Return the session of the withdrawal and all sessions made from it, parents first."""
        rows = db.execute(
            "SELECT id, owner_id, protected FROM family_below(%s, %s)", (self.project.id, self.session_id)
        )
        return [Target(str(row["id"]), row["owner_id"], row["protected"]) for row in rows]

    def apply(self, db: Connection, target: Target, edits: Edits) -> EditedSession | None:
        """Remove or replace records of one session, and return its new state, or `None` if it has none of them.

        `edits` maps the digest of each record to its replacement or `None`. The caller must have locked the project.
        """
        row = db.execute(
            "SELECT base_count, base_digest, revision, bytes FROM sessions WHERE project_id = %s AND id = %s",
            (self.project.id, target.id),
        ).fetchone()
        if row is None:
            return None
        places = sessions.places(db, self.project.id, target.id)
        body_of, base = segment_store.body_reader(db, self.project), (row["base_count"], bytes(row["base_digest"]))
        made = edited_session(places, body_of, edits, protected=target.protected, base=base)
        if made is None:
            return None
        for one in made.segments:
            segment_store.store_segment(db, self.project.id, one)
        sessions.put_places(db, self.project.id, target.id, [one.place for one in made.segments], made.position)
        segment_store.delete_unreferenced(db, self.project.id, [place.digest for place in places[made.position :]])
        self._count(db, target, made, int(row["bytes"]))
        # Whoever withdraws something may not read all that was made of it: the database takes it out of the search.
        db.execute("SELECT unindex(%s, %s)", (self.project.id, target.id))
        told = {old: new and sha256(new).digest() for old, new in edits.items() if old in made.done}
        withdrawal_log.store_withdrawal(
            db, self.project.id, target.id, told, kind=self.kind, revision=row["revision"] + 1
        )
        return made

    def _count(self, db: Connection, target: Target, made: EditedSession, before: int) -> None:
        db.execute(
            "UPDATE sessions SET base_count = %s, base_digest = %s, record_count = %s, head_digest = %s,"
            " revision = revision + 1 WHERE project_id = %s AND id = %s",
            (*(made.base_count, made.base_digest, made.record_count, made.head_digest), *(self.project.id, target.id)),
        )
        more = sessions.store_size(db, self.project.id, target.id) - before
        db.execute("UPDATE users SET bytes = bytes + %s WHERE id = %s", (more, target.owner))
        db.execute("UPDATE projects SET bytes = bytes + %s WHERE id = %s", (more, self.project.id))


def rewrite(database: Database, key: str, person: Person, session_id: str, wanted: Rewrite) -> Rewritten:
    """Withdraw records: remove or replace them in a session and in all sessions made from it.

    If a client repeats the request, nothing changes the second time.

    Raises:
        WrongVerb: the session belongs to another user, and the user does not maintain the project.
        Conflict: the session has changed since the client planned the withdrawal.
        Unshareable: a record is not in canonical form, or is not the session's own.
    """
    edits = checked_edits(wanted)
    given = {name: value for name in EMPTY_DESCRIPTION if (value := getattr(wanted, name)) is not None}
    given |= {"tags": list(given["tags"])} if "tags" in given else {}
    with database.transaction(person.id) as db:
        row = _withdrawable(db, key, person, session_id)
        known = withdrawal_log.withdrawal_of_revision(db, row["project_id"], session_id, wanted.revision + 1)
    work = WithdrawalWork(_project(row), session_id, wanted.kind)
    if known == {old: new and sha256(new).digest() for old, new in edits.items()}:
        return Rewritten(session=sessions.session_info(row), descendants=0)
    if row["revision"] != wanted.revision:
        raise _advanced(row)
    return _withdraw(database, work, person, row, edits, given=given)


def delete_everywhere(database: Database, key: str, person: Person, session_id: str) -> Rewritten:
    """Hide a session, and remove all its records except its parent's, also from all sessions made from it."""
    with database.transaction(person.id) as db:
        row = _withdrawable(db, key, person, session_id, deleted=True)
        work = WithdrawalWork(_project(row), session_id, "delete")
        own = sessions.records(db, *_ids(work))[row["base_count"] :]
    edits: dict[bytes, bytes | None] = {sha256(record).digest(): None for record in own}
    return _withdraw(database, work, person, row, edits, given=EMPTY_DESCRIPTION)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """All records that their owner withdrew (removed) from one session, so that a restore can remove them again.

    `edits` maps their digests to the replacements, or to `None`. `hide` is true if the session was deleted.
    """

    project: str
    session_id: str
    edits: Edits
    hide: bool


def withdrawals(db: Connection) -> list[Withdrawal]:
    """Return the withdrawn records (removed by their owner) of each session.

    `db` must be a connection of the tables' owner.
    """
    rows = db.execute(
        "SELECT t.project_id, p.key, t.session_id, array_agg(t.digest) AS digests,"
        " EXISTS (SELECT FROM rewrites r WHERE r.project_id = t.project_id AND r.session_id = t.session_id"
        " AND r.kind = 'delete') AS hide"
        " FROM tombstones t JOIN projects p ON p.id = t.project_id GROUP BY 1, 2, 3 ORDER BY min(t.at), 1, 3"
    ).fetchall()
    found = []
    for row in rows:
        work = WithdrawalWork(_project(row), str(row["session_id"]), "cut")
        there = {sha256(record).digest(): record for record in sessions.records(db, *_ids(work))}
        digests = withdrawal_log.all_edits(db, *_ids(work))
        edits = {old: there.get(new) if new is not None else None for old, new in digests.items()}
        buried = {digest: edits.get(digest) for digest in row["digests"]}
        found.append(Withdrawal(row["key"], work.session_id, buried, row["hide"]))
    return found


def repeat_withdrawal(db: Connection, owner: int, one: Withdrawal, where: MemberProject) -> None:
    """Repeat a withdrawal in a restored database.

    `owner` is the number of the session's owner. `db` must be a connection of the tables' owner.
    """
    work = WithdrawalWork(where, one.session_id, "delete" if one.hide else "cut")
    with db.transaction():
        withdrawal_log.block_pushes(db, where.id)
        _edit_family(db, work, owner, one.edits)


def _withdraw(
    database: Database, work: WithdrawalWork, person: Person, row: Row, edits: Edits, *, given: Mapping[str, Any]
) -> Rewritten:
    with database.transaction(row["owner_id"]) as db:
        withdrawal_log.block_pushes(db, work.project.id)
        now = db.execute("SELECT revision FROM sessions WHERE project_id = %s AND id = %s", _ids(work)).fetchone()
        if now is None or now["revision"] != row["revision"]:
            raise _advanced(row)
        done, changed = _edit_family(db, work, row["owner_id"], edits)
        if set(edits) != done:
            raise Unshareable(
                "Some of these records belong to a parent session.",
                "Only the parent's owner can withdraw its messages.",
            )
        _act_as(db, person.id)
        verb = "delete_everywhere" if work.kind == "delete" else "excise"
        audit_log.add_line(db, person, verb, *_ids(work), records=len(edits))
        _describe(db, work, row, given)
        _act_as(db, row["owner_id"])
        after = db.execute("SELECT * FROM sessions WHERE project_id = %s AND id = %s", _ids(work)).fetchone()
    return Rewritten(session=sessions.session_info({**row, **(after or {})}), descendants=changed)


def _edit_family(db: Connection, work: WithdrawalWork, owner: int, edits: Edits) -> tuple[frozenset[bytes], int]:
    """Remove or replace records of a session and of all sessions made from it. A deletion also hides the session.

    Return the digests of the records that the session had, and the number of other changed sessions.
    """
    withdrawal_log.add_tombstones(db, *_ids(work), edits)
    _act_as(db, owner)
    done, changed = frozenset[bytes](), 0
    for target in work.targets(db):
        _act_as(db, target.owner)
        made = work.apply(db, target, edits)
        if target.id == work.session_id:
            done = made.done if made else done
        else:
            changed += made is not None
    segment_store.delete_unused_containing(db, work.project, edits)
    _act_as(db, owner)
    if work.kind == "delete":
        db.execute(
            "UPDATE sessions SET deleted_at = coalesce(deleted_at, now()) WHERE project_id = %s AND id = %s", _ids(work)
        )
    return done, changed


def _withdrawable(db: Connection, key: str, person: Person, session_id: str, *, deleted: bool = False) -> Row:
    """Return the row of a session from which the user may withdraw (remove) records.

    They are the user's own, and for a maintainer of the project all that the user may read. With `deleted`, an own
    session may be hidden.
    """
    if deleted and (own := sessions.own(db, key, person, session_id)) is not None:
        return own
    row = sessions.readable(db, key, person, session_id)
    if row["owner_id"] == person.id:
        return row
    maintains = db.execute(
        "SELECT 1 FROM members WHERE project_id = %s AND user_id = %s AND role = 'maintainer'",
        (row["project_id"], person.id),
    ).fetchone()
    if maintains is None:
        raise WrongVerb(wire.NOT_OWNER)
    return row


def _describe(db: Connection, work: WithdrawalWork, row: Row, given: Mapping[str, Any]) -> None:
    """Replace the title, summary or tags of a session, and equal ones in sessions made from it, by those in `given`.

    Titles that are its title with the suffix of a branch are replaced too.
    """
    targets = work.targets(db)
    branches = f"{name} (Branch" if (name := titles.without_suffix(row["title"])) else None
    for target in targets:
        _act_as(db, target.owner)
        for name, value in given.items():
            db.execute(
                sql.SQL(
                    "UPDATE sessions SET {0} = %s WHERE project_id = %s AND id = %s"
                    " AND ({0} = %s OR starts_with({0}::text, %s))"
                ).format(sql.Identifier(name)),
                (value, work.project.id, target.id, row[name], branches if name == "title" else None),
            )


def _act_as(db: Connection, user: int) -> None:
    db.execute("SELECT set_config('smartfork.user', %s, true)", (str(user),))


def _ids(work: WithdrawalWork) -> tuple[int, str]:
    return work.project.id, work.session_id


def _project(row: Row) -> MemberProject:
    return MemberProject(row["project_id"], row["key"], "writer")


def _advanced(row: Row) -> Conflict:
    return Conflict(
        "The session changed after the plan.",
        "Try again: the new plan uses the current session.",
        count=row["record_count"],
        digest=canonical.digest_of_state(row["head_digest"]),
    )


#: The edits of a withdrawal: the SHA-256 of each record, with the record that replaces it, or `None` if it is removed.
Edits = Mapping[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class EditedSession:
    """The new state of a session after records were removed or replaced.

    `segments` (blocks of records) take the place of the old ones from number `position` on. `base_count` is the number
    of records that the session's parent has too. `done` are the digests of the removed or replaced records.
    """

    position: int
    segments: tuple[Segment, ...]
    base_count: int
    base_digest: bytes
    record_count: int
    head_digest: bytes
    done: frozenset[bytes]


def checked_edits(wanted: Rewrite) -> dict[bytes, bytes | None]:
    """Return the edits of a request to withdraw records: the replacement or `None`, by the record's digest.

    Raises:
        Usage: the edits contradict each other, or do not match the sent records.
        Unshareable: a record is not in canonical form, or too large.
    """
    for record in wanted.records:
        canonical.decode(record)
    sent = {sha256(record).hexdigest(): record for record in wanted.records}
    olds = {edit.old for edit in wanted.edits}
    news = {edit.new for edit in wanted.edits if edit.new is not None}
    if len(olds) < len(wanted.edits) or news & olds:
        raise Usage("A record is replaced twice.")
    if news != set(sent):
        raise Usage("The records are not those that the edits name.")
    return {bytes.fromhex(edit.old): sent[edit.new] if edit.new else None for edit in wanted.edits}


def edited_session(
    places: Sequence[SegmentPlace],
    body_of: Callable[[SegmentPlace], bytes],
    edits: Edits,
    *,
    protected: int,
    base: tuple[int, bytes],
) -> EditedSession | None:
    """Compute the new state of a session after removing or replacing records; `None` if it has none of them.

    The first `protected` records do not change. `edits` maps the digest of each record to its replacement or `None`.
    Segments (blocks of records) before the first changed record stay.
    """
    done: set[bytes] = set()
    old: list[bytes] = []
    position: int | None = None
    for number, place in enumerate(places):
        if place.end <= protected:
            continue
        records = unpack(body_of(place), place.digest)
        reached = records[max(0, protected - place.first_record) :]
        hits = {digest for record in reached if (digest := sha256(record).digest()) in edits}
        done |= hits
        if hits and position is None:
            position = number
        if position is not None:
            old += records
    if position is None:
        return None
    first = places[position]
    start = first.first_record, first.chain_start
    new, count = _edited_records(edits, old, start[0], protected=protected, base_count=base[0])
    return EditedSession(
        position,
        tuple(pack(new, *start)),
        count,
        base[1] if base[0] <= start[0] else canonical.state_after(new[: count - start[0]], start[1]),
        start[0] + len(new),
        canonical.state_after(new, start[1]),
        frozenset(done),
    )


def _edited_records(
    edits: Edits, records: Iterable[bytes], first: int, *, protected: int, base_count: int
) -> tuple[list[bytes], int]:
    """Return the records after `edits`, and the session's new `base_count` (the number of its parent's records).

    `first` is the number of the first of the given records. Those before number `protected` do not change.
    """
    new: list[bytes] = []
    count = base_count
    for number, record in enumerate(records, first):
        digest = sha256(record).digest()
        if number < protected or digest not in edits:
            new.append(record)
        elif (replaced := edits[digest]) is not None:
            new.append(replaced)
        elif number < base_count:
            count -= 1
    return new, count
