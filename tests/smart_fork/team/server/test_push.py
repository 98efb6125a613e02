"""Pushes, branches and forks, as the database sees them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from smart_fork.errors import Conflict, NotFound, TooLarge, Unshareable, Usage, WrongVerb
from smart_fork.sharing import canonical
from smart_fork.sharing.canonical import digest_of, digest_of_state, state_after, state_of
from smart_fork.team.segments import pack, unpack
from smart_fork.team.server import segment_store, sessions
from smart_fork.team.server.sessions import OverQuota
from smart_fork.team.wire import Push
from tests.smart_fork.team.server.team import new_id, push_of, record
from tests.support.cases import thorough_except_first

SHORT = [record(number) for number in range(10)]
LONG = [record(number, "word " * 40) for number in range(1_300)]


@pytest.fixture
def alice(team):
    team.add("alice")
    team.add("bob")
    return team


def head(team, session):
    row = team.owned.execute(
        "SELECT record_count, head_digest, revision, bytes FROM sessions WHERE id = %s", (session,)
    ).fetchone()
    return row[0], "sf1:" + row[1].hex(), row[2], row[3]


@pytest.mark.parametrize("records", [SHORT, LONG], ids=["one segment", "several"])
def test_what_is_pushed_is_what_is_stored(alice, records):
    session = new_id()
    outcome = alice.push("alice", push_of(session, [], records, title="Retry", tags=["a"]))

    assert (True, False) == (outcome.created, outcome.up_to_date)
    assert records == alice.stored(session)
    told = outcome.session
    assert (session, None, 0, digest_of([]), digest_of(records)) == (
        told.root_id, told.parent_id, told.base_count, told.base_digest, told.head_digest,
    )  # fmt: skip
    assert ("private", "Retry", ("a",), 1) == (told.visibility, told.title, told.tags, told.revision)
    assert sum(len(one) + 1 for one in records) == told.bytes


@pytest.mark.parametrize("cut", thorough_except_first([512, 1, 511, 513, 1_024, 1_299]))
def test_a_session_grows_to_what_one_push_would_have_made(alice, cut):
    session, other = new_id(), new_id()
    alice.push("alice", push_of(session, [], LONG[:cut]))
    alice.push("alice", push_of(session, LONG[:cut], LONG[cut:]))
    alice.push("alice", push_of(other, [], LONG))

    assert LONG == alice.stored(session)
    rows = "SELECT position, digest, chain_start FROM session_segments WHERE session_id = %s ORDER BY 1"
    assert alice.owned.execute(rows, (session,)).fetchall() == alice.owned.execute(rows, (other,)).fetchall()


def test_the_same_push_once_more_appends_nothing(alice):
    """C-056."""
    session = new_id()
    first, more = push_of(session, [], SHORT), push_of(session, SHORT, LONG[:3])
    for wanted in (first, more):
        alice.push("alice", wanted)
        before = head(alice, session)
        again = alice.push("alice", wanted)

        assert (False, True) == (again.created, again.up_to_date)
        assert before == head(alice, session)


def test_a_push_of_nothing_new_is_up_to_date(alice):
    session = new_id()
    alice.push("alice", push_of(session, [], SHORT))

    assert alice.push("alice", push_of(session, SHORT, []).model_copy(update={"segments": (), "bodies": ()})).up_to_date


def test_who_has_not_seen_the_newest_is_told_what_it_is_and_changes_nothing(alice):
    session = new_id()
    alice.push("alice", push_of(session, [], SHORT))
    alice.push("alice", push_of(session, SHORT, LONG[:5]))
    before = head(alice, session)

    with pytest.raises(Conflict, match=r"The remote session has advanced \(10 -> 15 records\)\.") as conflict:
        alice.push("alice", push_of(session, SHORT, LONG[7:9]))
    assert (15, digest_of([*SHORT, *LONG[:5]])) == (conflict.value.count, conflict.value.digest)
    assert before == head(alice, session)
    assert [*SHORT, *LONG[:5]] == alice.stored(session)


def test_creating_what_is_there_with_other_records_is_a_conflict(alice):
    session = new_id()
    alice.push("alice", push_of(session, [], SHORT))

    with pytest.raises(Conflict):
        alice.push("alice", push_of(session, [], LONG[:2]))


@pytest.mark.parametrize("visibility", thorough_except_first(["private", "public"]))
def test_nobody_pushes_to_somebody_elses_session(alice, visibility):
    """C-010."""
    session = new_id()
    alice.push("alice", push_of(session, [], SHORT, visibility=visibility))
    before = head(alice, session)
    missing = new_id()

    texts = set()
    for wanted in (push_of(session, SHORT, LONG[:2]), push_of(session, [], SHORT), push_of(missing, SHORT, LONG[:2])):
        with pytest.raises(NotFound) as refused:
            alice.push("bob", wanted)
        texts.add((refused.value.message.replace(session, "ID").replace(missing, "ID"), refused.value.hint))
    assert 1 == len(texts)
    assert before == head(alice, session)


def test_a_reader_does_not_push(alice):
    alice.add("rose", "reader")

    with pytest.raises(WrongVerb, match="You are not a writer of"):
        alice.push("rose", push_of(new_id(), [], SHORT))


FORGED = {
    "the digest": lambda push: {"digest": "sf1:" + "0" * 64},
    "the count": lambda push: {"count": push.count + 1},
    "the base": lambda push: {"base_digest": "sf1:" + "0" * 64},
    "the base's count": lambda push: {"base_count": push.base_count - 1},
    "a segment's records": lambda push: {"segments": (replace(push.segments[0], records=1),)},
    "a segment's bytes": lambda push: {"segments": (replace(push.segments[0], raw_bytes=1),)},
    "where it begins": lambda push: {"segments": (replace(push.segments[0], chain_start=b"1" * 32),)},
    "its position": lambda push: {"position": 1},
    "its first record": lambda push: {"segments": (replace(push.segments[0], first_record=10),)},
    "no segments": lambda push: {"segments": (), "bodies": ()},
    "a segment that was not sent": lambda push: {"bodies": ()},
    "a segment too many": lambda push: {"segments": ()},
    "a body": lambda push: {"bodies": (push.bodies[0].model_copy(update={"body": b"nonsense"}),)},
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_push_that_is_not_what_it_says_changes_nothing(alice, forged):
    session = new_id()
    alice.push("alice", push_of(session, [], SHORT))
    before = head(alice, session)
    honest = push_of(session, SHORT, LONG[:3])

    with pytest.raises((Unshareable, Conflict)):
        alice.push("alice", honest.model_copy(update=forged(honest)))
    assert before == head(alice, session)
    assert SHORT == alice.stored(session)
    assert not alice.push("alice", honest).up_to_date


def test_segments_that_end_too_early_are_refused(alice):
    first = next(pack(SHORT[:4]))
    second = next(pack(SHORT[4:], 4, state_after(SHORT[:4])))
    wanted = push_of(new_id(), [], SHORT).model_copy(
        update={
            "segments": (first.place, second.place),
            "bodies": tuple(
                push_of(new_id(), [], SHORT).bodies[0].model_copy(update={"digest": one.place.digest, "body": one.body})
                for one in (first, second)
            ),
        }
    )

    with pytest.raises(Unshareable, match="ends too early"):
        alice.push("alice", wanted)


def test_a_known_digest_is_no_key_to_what_others_keep_private(alice):
    session = new_id()
    alice.push("alice", push_of(session, [], SHORT))
    wanted = push_of(new_id(), [], SHORT, bodies=False)
    digest = wanted.segments[0].digest

    with alice.pool.transaction(alice.people["bob"].id) as db:
        assert [] == segment_store.known_segments(db, alice.project("bob"), alice.people["bob"], [digest])
        with pytest.raises(NotFound):
            segment_store.readable_body(db, alice.project("bob"), alice.people["bob"], digest)
    with pytest.raises(Unshareable, match="A segment was not sent"):
        alice.push("bob", wanted)


def test_what_is_there_to_be_read_need_not_be_sent(alice):
    alice.push("alice", push_of(new_id(), [], LONG, visibility="public"))
    mine = new_id()

    alice.push("bob", push_of(mine, [], LONG, bodies=False))
    assert LONG == alice.stored(mine)


def test_limits_are_those_of_the_session_the_user_and_the_project(alice, monkeypatch):
    for limits, wrong in (
        ({"session_records": 9}, TooLarge),
        ({"session_bytes": 100}, TooLarge),
        ({"user_bytes": 100}, OverQuota),
        ({"project_bytes": 100}, OverQuota),
        ({"record_bytes": 10}, TooLarge),
    ):
        session = new_id()
        wanted = push_of(session, [], SHORT)
        with monkeypatch.context() as patch:
            patch.setattr(canonical, "LIMITS", canonical.Limits(**limits))
            with pytest.raises(wrong):
                alice.push("alice", wanted)
        assert [] == alice.stored(session)


def test_bytes_are_counted_for_the_user_and_the_project(alice):
    session = new_id()
    alice.push("alice", push_of(session, [], LONG[:600]))
    alice.push("alice", push_of(session, LONG[:600], LONG[600:]))
    size = sum(len(one) + 1 for one in LONG)

    person = alice.people["alice"].id
    assert (size,) == alice.owned.execute("SELECT bytes FROM users WHERE id = %s", (person,)).fetchone()
    assert (size,) == alice.owned.execute("SELECT bytes FROM projects WHERE key = %s", (alice.key,)).fetchone()


@pytest.mark.parametrize("count", thorough_except_first([513, 1, 511, 512, 1_299, 1_300, None]))
def test_a_branch_has_the_first_records_and_no_other_ones(alice, count):
    source = new_id()
    alice.push("alice", push_of(source, [], LONG))
    taken = LONG[: count or len(LONG)]

    child = alice.branch("alice", source, count=count).session
    assert taken == alice.stored(child.id)
    assert (source, source) == (child.root_id, child.parent_id)
    assert (len(taken), digest_of(taken), digest_of(taken)) == (child.base_count, child.base_digest, child.head_digest)
    alice.push("alice", push_of(child.id, taken, SHORT))
    assert [*taken, *SHORT] == alice.stored(child.id)
    assert LONG == alice.stored(source)


def test_a_branch_of_a_branch_has_the_same_root(alice):
    """C-032."""
    source = new_id()
    alice.push("alice", push_of(source, [], SHORT))
    child = alice.branch("alice", source, count=5).session.id

    grandchild = alice.branch("alice", child, count=3).session
    assert (source, child, 3) == (grandchild.root_id, grandchild.parent_id, grandchild.base_count)


@pytest.mark.parametrize("count", [0, 11])
def test_a_branch_at_a_record_that_is_not_there_is_refused(alice, count):
    source = new_id()
    alice.push("alice", push_of(source, [], SHORT))

    with pytest.raises(Usage, match="--at takes 1 to 10"):
        alice.branch("alice", source, count=count)


def test_the_same_branch_once_more_makes_none(alice):
    source, child = new_id(), new_id()
    alice.push("alice", push_of(source, [], SHORT))
    alice.branch("alice", source, id=child, count=4)

    assert alice.branch("alice", source, id=child, count=4).up_to_date
    with pytest.raises(Conflict, match="Another session has that id"):
        alice.branch("alice", source, id=child, count=5)


def test_whose_a_session_is_decides_between_branch_and_fork(alice):
    public, private = new_id(), new_id()
    alice.push("alice", push_of(public, [], SHORT, visibility="public"))
    alice.push("alice", push_of(private, [], SHORT))

    with pytest.raises(WrongVerb, match=r"You don't own this session\. Use smart-fork team fork\."):
        alice.branch("bob", public)
    with pytest.raises(WrongVerb, match=r"You own this session\. Use smart-fork team branch to create a copy\."):
        alice.branch("alice", public, verb="fork")
    for verb in ("branch", "fork"):
        with pytest.raises(NotFound, match=private):
            alice.branch("bob", private, verb=verb)
    forked = alice.branch("bob", public, verb="fork").session
    assert (alice.people["bob"].name, "private", public) == (forked.owner, forked.visibility, forked.parent_id)
    assert "private" == alice.branch("alice", private).session.visibility
    assert alice.branch("alice", public, verb="fork", force=True).created


def test_lineage_stays_when_the_source_is_deleted_or_made_private(alice):
    """C-034."""
    source = new_id()
    alice.push("alice", push_of(source, [], SHORT, visibility="public"))
    child = alice.branch("bob", source, verb="fork").session
    with alice.pool.transaction(alice.people["alice"].id) as db:
        sessions.delete(db, alice.key, alice.people["alice"], source)

    with alice.pool.transaction(alice.people["bob"].id) as db:
        assert child == sessions.session_info(sessions.readable(db, alice.key, alice.people["bob"], child.id))
    assert SHORT == alice.stored(child.id)
    with pytest.raises(NotFound):
        alice.push("alice", push_of(source, SHORT, LONG[:1]))


def test_what_was_sent_and_never_committed_is_swept_and_what_is_used_stays(alice):
    used, lost = push_of(new_id(), [], SHORT), push_of(new_id(), [], LONG[:3]).bodies[0]
    alice.push("alice", used)
    project, person = alice.project("alice"), alice.people["alice"]
    with alice.pool.transaction(person.id) as db:
        segment_store.store_upload(db, project, person, lost.digest, lost.body, [b"12"] * 3)
        assert 0 == segment_store.delete_old_unused(db, project.id)
    alice.owned.execute("UPDATE uploads SET at = at - interval '2 days' WHERE project_id = %s", (project.id,))
    alice.owned.execute(
        "UPDATE segments SET created_at = created_at - interval '2 days' WHERE project_id = %s", (project.id,)
    )

    with alice.pool.transaction(person.id) as db:
        assert 1 == segment_store.delete_old_unused(db, project.id)
        assert [used.segments[0].digest] == segment_store.known_segments(
            db, project, person, [lost.digest, used.segments[0].digest]
        )


def test_sql_in_every_field_is_text(alice):
    sql = "'); DROP TABLE sessions; --"
    session = new_id()
    alice.push("alice", push_of(session, [], [record(1, sql)], title=sql, tags=[sql, '{"a",b}'], summary=sql))

    told = alice.push("alice", push_of(session, [record(1, sql)], SHORT)).session
    assert (sql, (sql, '{"a",b}'), sql) == (told.title, told.tags, told.summary)


NOISE = random.Random(7)  # noqa: S311
NOISY = [record(number, NOISE.randbytes(2_000).hex()) for number in range(100)]


def test_a_fork_from_somewhere_goes_on_from_there(alice):
    session = new_id()
    alice.push("alice", push_of(session, [], NOISY, visibility="public"))
    forks = {count: alice.branch("bob", session, verb="fork", count=count).session.id for count in (1, 40, 70, 100)}
    of_fork = alice.branch("bob", forks[70], count=30).session.id

    own = record(1_000, "own")
    for count, fork in forks.items():
        goes_on(alice, "bob", fork, [own])
        assert [*NOISY[:count], own] == alice.stored(fork)
        goes_on(alice, "bob", fork, [record(1_001)])
        assert [*NOISY[:count], own, record(1_001)] == alice.stored(fork)
    assert NOISY[:30] == alice.stored(of_fork)


@pytest.mark.thorough
def test_what_was_open_stays_for_whoever_has_forked_it(alice):
    session = new_id()
    forks = {}
    for count in range(10, 101, 10):
        old = NOISY[: count - 10]
        alice.push("alice", push_of(session, old, NOISY[count - 10 : count], visibility=None if old else "public"))
        forks[count] = alice.branch("bob", session, verb="fork").session.id
    for count, fork in forks.items():
        assert NOISY[:count] == alice.stored(fork)

    with alice.pool.transaction(alice.people["alice"].id) as db:
        sessions.delete(db, alice.key, alice.people["alice"], session)
        db.execute(
            "DELETE FROM session_segments WHERE project_id = %s AND session_id = %s",
            (alice.project("alice").id, session),
        )
        db.execute(
            "UPDATE segments SET created_at = now() - interval '2 days' WHERE project_id = %s",
            (alice.project("alice").id,),
        )
        db.execute("DELETE FROM uploads WHERE project_id = %s", (alice.project("alice").id,))
        segment_store.delete_old_unused(db, alice.project("alice").id)
    for count, fork in forks.items():
        assert NOISY[:count] == alice.stored(fork)


@pytest.mark.thorough
def test_a_push_that_names_all_segments_again_leaves_each_as_it_is(alice):
    session = new_id()
    alice.push("alice", push_of(session, [], NOISY, visibility="public"))
    fork = alice.branch("bob", session, verb="fork").session.id
    new = [record(2_000)]
    whole = list(pack([*NOISY, *new]))
    given = {
        "position": 0,
        "segments": tuple(one.place for one in whole),
        "bodies": [{"digest": one.place.digest, "body": one.body} for one in whole],
    }
    alice.push("alice", push_of(session, NOISY, new, **given))

    assert 2 <= len(whole)
    assert [*NOISY, *new] == alice.stored(session)
    assert NOISY == alice.stored(fork)


def goes_on(team, who, session, new):
    """Push new records as a client does: into the last segment if it is the session's own and has room."""
    with team.pool.transaction(team.people[who].id) as db:
        row = sessions.readable(db, team.key, team.people[who], session)
        places = sessions.places(db, row["project_id"], session)
        info, bodies = sessions.session_info(row), segment_store.bodies(db, row["project_id"], [places[-1].digest])
    last = places[-1]
    before = [] if last.full or last.end == info.base_count else unpack(bodies[last.digest], last.digest)
    position = len(places) - bool(before)
    start = last.chain_start if before else state_of(info.head_digest)
    packed = list(pack([*before, *new], info.record_count - len(before), start))
    given = {
        "id": session, "agent": "claude", "base_count": info.record_count, "base_digest": info.head_digest,
        "count": info.record_count + len(new), "digest": digest_of_state(state_after(new, state_of(info.head_digest))),
        "position": position, "segments": tuple(one.place for one in packed),
        "bodies": [{"digest": one.place.digest, "body": one.body} for one in packed],
    }  # fmt: skip
    return team.push(who, Push.model_validate(given, strict=False))
