"""The withdrawal of records from a session and all sessions made from it, and from no other."""

from __future__ import annotations

from hashlib import sha256

import psycopg
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.rows import dict_row
from pydantic import ValidationError

from smart_fork.errors import Conflict, NotFound, Unshareable, Usage, Withdrawn, WrongVerb
from smart_fork.sharing.canonical import digest_of, encode
from smart_fork.team.server import sessions, withdrawal, withdrawal_log
from smart_fork.team.server.routes import AskedChanges
from smart_fork.team.wire import Rewrite
from tests.smart_fork.team.server.team import new_id, push_of, record

SECRET = "hunter2-correct-horse"
SHORT = [record(number) for number in range(10)]


def known(data: bytes) -> str:
    return sha256(data).hexdigest()


def edits_of(changes: dict[bytes, bytes | None], revision: int, **options) -> Rewrite:
    return Rewrite(
        kind="cut",
        revision=revision,
        edits=tuple({"old": known(old), "new": known(new) if new else None} for old, new in changes.items()),
        records=tuple({new for new in changes.values() if new}),
        **options,
    )


def revision_of(team, session):
    return team.owned.execute("SELECT revision FROM sessions WHERE id = %s", (session,)).fetchone()[0]


def withdraw(team, who, session, changes, **options):
    wanted = edits_of(changes, revision_of(team, session), **options)
    return withdrawal.rewrite(team.pool, team.key, team.people[who], session, wanted)


def stands(team, session):
    """Return a session's base, record count and digests in the database."""
    row = team.owned.execute(
        "SELECT base_count, base_digest, record_count, head_digest, bytes, root_id, parent_id FROM sessions WHERE id = %s",
        (session,),
    ).fetchone()
    return row[0], "sf1:" + row[1].hex(), row[2], "sf1:" + row[3].hex(), row[4]


def expected(records, base):
    return base, digest_of(records[:base]), len(records), digest_of(records), sum(len(one) + 1 for one in records)


def dump(team):
    """Return all rows of the team's project as text, decompressed where needed."""
    tables = ("sessions", "session_segments", "uploads", "chunks", "placements", "session_words", "lexemes", "rewrites")
    (project,) = team.owned.execute("SELECT id FROM projects WHERE key = %s", (team.key,)).fetchone()
    found = b""
    for table in tables:
        statement = sql.SQL("COPY (SELECT * FROM {} WHERE project_id = {}) TO STDOUT")
        with team.owned.cursor().copy(statement.format(sql.Identifier(table), sql.Literal(project))) as rows:
            found += b"".join(bytes(row) for row in rows)
    bodies = team.owned.execute("SELECT body FROM segments WHERE body IS NOT NULL AND project_id = %s", (project,))
    found += b"".join(zstandard.ZstdDecompressor().decompress(body) for (body,) in bodies.fetchall())
    return found.decode()


@pytest.fixture
def team(team):
    for name in ("alice", "bob", "carol"):
        team.add(name)
    return team


def test_a_record_goes_from_the_session_and_from_forks_of_others(team):
    source = new_id()
    team.push("alice", push_of(source, [], SHORT, visibility="public"))
    fork = team.branch("bob", source, verb="fork", count=8).session.id
    own = [record(number, "bob's") for number in range(3)]
    team.push("bob", push_of(fork, SHORT[:8], own))
    of_fork = team.branch("bob", fork, count=9).session.id

    outcome = withdraw(team, "alice", source, {SHORT[4]: None, SHORT[9]: None})

    left = [*SHORT[:4], *SHORT[5:9]]
    assert 2 == outcome.descendants
    assert left == team.stored(source)
    assert [*SHORT[:4], *SHORT[5:8], *own] == team.stored(fork)
    assert [*SHORT[:4], *SHORT[5:8], own[0]] == team.stored(of_fork)
    assert expected(left, 0) == stands(team, source)
    assert expected([*SHORT[:4], *SHORT[5:8], *own], 7) == stands(team, fork)
    assert expected([*SHORT[:4], *SHORT[5:8], own[0]], 8) == stands(team, of_fork)
    lineage = "SELECT root_id::text, parent_id::text FROM sessions WHERE id = %s"
    assert (source, fork) == team.owned.execute(lineage, (of_fork,)).fetchone()


def test_a_record_is_replaced_where_another_is_given(team):
    source, new = new_id(), record(4, "[REDACTED]")
    team.push("alice", push_of(source, [], SHORT, visibility="public"))
    fork = team.branch("bob", source, verb="fork").session.id

    withdraw(team, "alice", source, {SHORT[4]: new})

    assert [*SHORT[:4], new, *SHORT[5:]] == team.stored(source) == team.stored(fork)
    assert expected(team.stored(fork), 10) == stands(team, fork)


def test_who_forked_a_session_cannot_withdraw_it_from_its_author(team):
    source = new_id()
    team.push("alice", push_of(source, [], SHORT, visibility="public"))
    fork = team.branch("bob", source, verb="fork").session.id
    team.push("bob", push_of(fork, SHORT, [record(99)]))

    with pytest.raises(Unshareable, match=r"belong to a parent session"):
        withdraw(team, "bob", fork, {SHORT[4]: None})
    with pytest.raises(WrongVerb, match="You don't own this session"):
        withdraw(team, "bob", source, {SHORT[4]: None})
    assert SHORT == team.stored(source)
    assert [*SHORT, record(99)] == team.stored(fork)
    withdraw(team, "bob", fork, {record(99): None})
    assert SHORT == team.stored(fork)


def test_the_same_record_in_what_it_was_made_of_stays(team):
    source, fork = new_id(), new_id()
    team.push("alice", push_of(source, [], SHORT, visibility="public"))
    team.branch("bob", source, verb="fork", id=fork)
    team.push("bob", push_of(fork, SHORT, [record(50), SHORT[4]]))
    early = team.branch("bob", fork, count=3).session.id
    team.push("bob", push_of(early, SHORT[:3], [record(51), SHORT[4]]))

    withdraw(team, "bob", fork, {SHORT[4]: None})

    assert [*SHORT, record(50)] == team.stored(fork)
    assert [*SHORT[:3], record(51)] == team.stored(early)
    assert SHORT == team.stored(source)


def test_a_maintainer_withdraws_what_he_may_read_and_nothing_else(team):
    team.add("max", "maintainer")
    public, private = new_id(), new_id()
    team.push("alice", push_of(public, [], SHORT, visibility="public"))
    team.push("alice", push_of(private, [], SHORT))
    fork = team.branch("bob", public, verb="fork").session.id

    withdraw(team, "max", public, {SHORT[4]: None})
    with pytest.raises(NotFound):
        withdraw(team, "max", private, {SHORT[4]: None})
    assert 9 == len(team.stored(public)) == len(team.stored(fork))
    assert SHORT == team.stored(private)


def test_nothing_of_it_is_left_in_any_table(team):
    source = new_id()
    secret = [record(number, f"{SECRET}-{number}" * 9) for number in range(4)]
    team.push("alice", push_of(source, [], [*SHORT, *secret[:2]], visibility="public", title=SECRET, summary=SECRET))
    team.push("alice", push_of(source, [*SHORT, *secret[:2]], secret[2:]))  # the open segment is left behind
    fork = team.branch("bob", source, verb="fork", count=12).session.id
    team.push("bob", push_of(fork, [*SHORT, *secret[:2]], [record(50)]))
    assert 5 <= dump(team).count(SECRET)

    withdraw(team, "alice", source, dict.fromkeys(secret), title="", summary="")

    assert SECRET not in dump(team)
    assert [*SHORT, record(50)] == team.stored(fork)
    kept = "SELECT count(*) FROM tombstones t JOIN projects p ON p.id = t.project_id WHERE p.key = %s"
    assert (4,) == team.owned.execute(kept, (team.key,)).fetchone()


def test_what_was_withdrawn_cannot_be_pushed_again(team):
    source = new_id()
    team.push("alice", push_of(source, [], SHORT))
    withdraw(team, "alice", source, {SHORT[4]: None})

    for who, wanted in (("alice", push_of(new_id(), [], SHORT)), ("bob", push_of(new_id(), [], SHORT[4:5]))):
        with pytest.raises(Withdrawn, match="1 of these records were withdrawn"):
            team.push(who, wanted)
    with pytest.raises(Conflict, match="has advanced"):
        team.push("alice", push_of(source, SHORT, [record(99)]))
    left = [*SHORT[:4], *SHORT[5:]]
    team.push("alice", push_of(source, left, [record(99)]))
    assert [*left, record(99)] == team.stored(source)


def test_who_withdraws_a_copy_of_others_records_takes_nothing_from_their_author(team):
    source, copy = new_id(), new_id()
    team.push("alice", push_of(source, [], SHORT, visibility="public"))
    team.push("bob", push_of(copy, [], [record(90), *SHORT], visibility="public"))
    reader = team.branch("carol", source, verb="fork").session.id
    withdraw(team, "bob", copy, dict.fromkeys(SHORT))

    for who, records in (("alice", SHORT), ("carol", SHORT[:4]), ("alice", [record(91), SHORT[2]])):
        again = new_id()
        team.push(who, push_of(again, [], records))
        assert records == team.stored(again)
    assert SHORT == team.stored(source) == team.stored(reader)
    with pytest.raises(Withdrawn, match="10 of these records"):
        team.push("bob", push_of(new_id(), [], SHORT))


def test_what_its_author_withdraws_comes_back_through_nobody(team):
    source, copy = new_id(), new_id()
    team.push("alice", push_of(source, [], SHORT, visibility="public"))
    team.branch("bob", source, verb="fork")
    team.push("bob", push_of(copy, [], [record(90), SHORT[3]]))
    withdraw(team, "bob", copy, {SHORT[3]: None})
    withdraw(team, "alice", source, {SHORT[4]: None, SHORT[3]: None})

    for who in ("alice", "bob", "carol"):
        with pytest.raises(Withdrawn, match="2 of these records"):
            team.push(who, push_of(new_id(), [], [record(91), *SHORT[3:5]]))


def test_the_same_withdrawal_once_more_changes_nothing(team):
    source = new_id()
    team.push("alice", push_of(source, [], SHORT))
    wanted = edits_of({SHORT[4]: None}, 1)
    first = withdrawal.rewrite(team.pool, team.key, team.people["alice"], source, wanted)
    again = withdrawal.rewrite(team.pool, team.key, team.people["alice"], source, wanted)

    assert 2 == first.session.revision == again.session.revision == revision_of(team, source)
    with pytest.raises(Conflict, match="changed after the plan"):
        withdrawal.rewrite(team.pool, team.key, team.people["alice"], source, edits_of({SHORT[5]: None}, 1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"edits": ({"old": known(SHORT[1]), "new": known(SHORT[2])},)},
        {"edits": ({"old": known(SHORT[1]), "new": None}, {"old": known(SHORT[1]), "new": None})},
        {"edits": ({"old": known(SHORT[1]), "new": None},), "records": (SHORT[2],)},
        {"edits": ({"old": known(SHORT[1]), "new": known(SHORT[1])},), "records": (SHORT[1],)},
    ],
)
def test_edits_that_contradict_each_other_are_refused(team, wrong):
    source = new_id()
    team.push("alice", push_of(source, [], SHORT))

    with pytest.raises(Usage):
        withdrawal.rewrite(
            team.pool, team.key, team.people["alice"], source, Rewrite(**{"kind": "cut", "revision": 1, **wrong})
        )
    assert SHORT == team.stored(source)


def test_deleting_everywhere_leaves_others_what_is_theirs(team):
    source = new_id()
    team.push("alice", push_of(source, [], SHORT, visibility="public", title="Mine"))
    fork = team.branch("bob", source, verb="fork").session.id
    team.push("bob", push_of(fork, SHORT, [record(50), record(51)]))

    outcome = withdrawal.delete_everywhere(team.pool, team.key, team.people["alice"], source)

    assert 1 == outcome.descendants
    assert [] == team.stored(source)
    assert [record(50), record(51)] == team.stored(fork)
    assert expected([record(50), record(51)], 0) == stands(team, fork)
    assert ("",) == team.owned.execute("SELECT title FROM sessions WHERE id = %s", (fork,)).fetchone()
    with pytest.raises(NotFound), team.pool.transaction(team.people["alice"].id) as db:
        sessions.readable(db, team.key, team.people["alice"], source)
    assert 0 == withdrawal.delete_everywhere(team.pool, team.key, team.people["alice"], source).descendants


def test_a_session_of_which_all_was_withdrawn_can_be_pushed_to(team):
    source = new_id()
    team.push("alice", push_of(source, [], SHORT))
    withdraw(team, "alice", source, dict.fromkeys(SHORT))
    assert [] == team.stored(source)

    again = team.push("alice", push_of(source, [], [record(70)]))
    assert (False, False) == (again.created, again.up_to_date)
    assert [record(70)] == team.stored(source)


def test_what_is_hidden_is_withdrawn_afterwards_all_the_same(team):
    source = new_id()
    team.push("alice", push_of(source, [], SHORT, visibility="public"))
    fork = team.branch("bob", source, verb="fork").session.id
    with team.pool.transaction(team.people["alice"].id) as db:
        sessions.delete(db, team.key, team.people["alice"], source)
    assert SHORT == team.stored(fork)

    withdrawal.delete_everywhere(team.pool, team.key, team.people["alice"], source)
    assert [] == team.stored(fork)


def test_who_has_a_copy_is_told_and_nobody_else(team):
    source = new_id()
    team.push("alice", push_of(source, [], SHORT, visibility="public"))
    fork = team.branch("bob", source, verb="fork").session.id
    withdraw(team, "alice", source, {SHORT[4]: None, SHORT[5]: record(5, "x")})

    told = {}
    for name, person in team.people.items():
        with team.pool.transaction(person.id) as db:
            told[name] = withdrawal_log.withdrawals_since(db, person, 0)
    edits = {(known(SHORT[4]), None), (known(SHORT[5]), known(record(5, "x")))}
    assert [source] == [one.session_id for one in told["alice"].changes]
    assert [source, fork] == [one.session_id for one in told["bob"].changes]
    assert {frozenset(edits)} == {frozenset((e.old, e.new) for e in one.edits) for one in told["bob"].changes}
    assert () == told["carol"].changes
    with team.pool.transaction(team.people["bob"].id) as db:
        again = withdrawal_log.withdrawals_since(db, team.people["bob"], int(told["bob"].next_page))
    assert ((), told["bob"].next_page) == (again.changes, again.next_page)


@pytest.mark.parametrize("since", ["x", "-1", "1.5", "9" * 40])
def test_a_bookmark_of_nobody_is_refused(since):
    with pytest.raises(ValidationError):
        AskedChanges(since=since)


def test_a_withdrawal_that_does_not_come_to_its_end_has_changed_nothing(team):
    source, replaced = new_id(), record(5, "[REDACTED]")
    team.push("alice", push_of(source, [], SHORT, visibility="public"))
    fork = team.branch("bob", source, verb="fork").session.id
    team.push("bob", push_of(fork, SHORT, [record(60)]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(withdrawal, "_describe", _killed)
        with pytest.raises(KeyboardInterrupt):
            withdraw(team, "alice", source, {SHORT[4]: None, SHORT[5]: replaced})
    assert (SHORT, [*SHORT, record(60)]) == (team.stored(source), team.stored(fork))

    withdraw(team, "alice", source, {SHORT[4]: None, SHORT[5]: replaced})
    assert [*SHORT[:4], replaced, *SHORT[6:], record(60)] == team.stored(fork)


def _killed(*_):
    raise KeyboardInterrupt


def test_what_is_done_again_after_a_restore_has_nothing_that_was_withdrawn_later(team):
    source = new_id()
    team.push("alice", push_of(source, [], SHORT))
    half, whole = record(4, "half " + SECRET), record(4, "[REDACTED]")
    for revision, change in enumerate(({SHORT[4]: half}, {half: whole}), 1):
        withdrawal.rewrite(team.pool, team.key, team.people["alice"], source, edits_of(change, revision))

    with psycopg.connect(team.owned.info.dsn, row_factory=dict_row) as db:
        [one] = [one for one in withdrawal.withdrawals(db) if one.session_id == source]
    assert {SHORT[4]: whole, half: whole} == {old: one.edits[sha256(old).digest()] for old in (SHORT[4], half)}
    assert 2 == len(one.edits)
    withdrawal.delete_everywhere(team.pool, team.key, team.people["alice"], source)
    with psycopg.connect(team.owned.info.dsn, row_factory=dict_row) as db:
        [one] = [one for one in withdrawal.withdrawals(db) if one.session_id == source]
    assert (True, {None}) == (one.hide, set(one.edits.values()))


#: Steps of a family's life: push n records to one, branch one at n, or withdraw records of one.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 5), st.integers(1, 300)),
        st.tuples(st.just("branch"), st.integers(0, 5), st.integers(1, 700)),
        st.tuples(st.just("withdraw"), st.integers(0, 5), st.lists(st.integers(0, 700), min_size=1, max_size=4)),
    ),
    min_size=3,
    max_size=9,
)


class Model:
    """A family as plain lists: the records of each session, the length of its base, and its parent."""

    def __init__(self):
        self.records, self.base, self.parent = [], [], []

    def withdraw(self, one, edits):
        reach = {one: self.base[one]}
        for number, parent in enumerate(self.parent):
            if parent in reach and number > parent:
                reach[number] = min(reach[parent], self.base[number])
        for number, protected in reach.items():
            kept = [
                (at, edits.get(line, line) if at >= protected else line) for at, line in enumerate(self.records[number])
            ]
            self.base[number] = sum(at < self.base[number] and line is not None for at, line in kept)
            self.records[number] = [line for _, line in kept if line is not None]


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, data=st.data())
@pytest.mark.slow
def test_a_family_is_what_lists_would_be(team, steps, data):
    model, ids, numbers = Model(), [], iter(range(1_000_000))

    def new(count):
        return [encode({"family": ids[0], "n": next(numbers)}) for _ in range(count)]

    ids.append(new_id())
    model.records.append(new(600))
    model.base.append(0)
    model.parent.append(None)
    team.push("alice", push_of(ids[0], [], model.records[0]))
    for verb, which, argument in steps:
        one = which % len(ids)
        there = model.records[one]
        if verb == "push":
            more = new(argument)
            team.push("alice", push_of(ids[one], there, more) if there else push_of(ids[one], [], more))
            model.records[one] = [*there, *more]
        elif verb == "branch" and there:
            count = 1 + argument % len(there)
            ids.append(team.branch("alice", ids[one], count=count).session.id)
            model.records.append(there[:count])
            model.base.append(count)
            model.parent.append(one)
        elif verb == "withdraw" and len(there) > model.base[one]:
            own = there[model.base[one] :]
            old = {own[number % len(own)] for number in argument}
            edits = {line: data.draw(st.sampled_from([None, new(1)[0]])) for line in sorted(old)}
            withdraw(team, "alice", ids[one], edits)
            model.withdraw(one, edits)
    for number, session in enumerate(ids):
        assert model.records[number] == team.stored(session)
        assert expected(model.records[number], model.base[number]) == stands(team, session)
