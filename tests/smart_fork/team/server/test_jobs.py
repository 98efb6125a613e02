"""Background jobs: run once, repeated after a failure, and never run by two processes."""

from __future__ import annotations

import secrets
import threading
from datetime import timedelta

import psycopg
import pytest
import zstandard
from psycopg import Rollback

from smart_fork.team.server import jobs, segment_store
from smart_fork.team.server.database import Database
from smart_fork.team.server.jobs import MAX_ATTEMPTS, JobWorker, Kind
from smart_fork.team.server.postgres_process import JOBS
from tests.smart_fork.team.server.team import new_id, push_of, put, record


@pytest.fixture(scope="module")
def background(database, base):
    with Database(database.conninfo(JOBS, base), 4, JOBS) as pool:
        yield pool


@pytest.fixture
def kind():
    """A name for a kind of job that no other test has."""
    return f"test_{secrets.token_hex(4)}"


@pytest.fixture
def waiting(owned, kind):
    def rows():
        return owned.execute(
            "SELECT attempts, error, run_after > now() FROM jobs WHERE kind = %s ORDER BY id", (kind,)
        ).fetchall()

    return rows


def left(team, kind, session, revision=1):
    with team.pool.transaction() as db:
        put(db, kind, 1, session, revision)


def test_a_job_is_run_once_with_what_it_is_about(team, background, kind, waiting):
    done = []
    session = new_id()
    left(team, kind, session, 7)
    one = JobWorker(background, {kind: Kind(lambda db, *about: done.append(about))})

    assert [True, False] == [one.run_next(), one.run_next()]
    assert [(1, session, 7)] == [(project, str(about), revision) for project, about, revision in done]
    assert [] == waiting()


def test_what_was_put_several_times_is_run_once(team, background, kind, waiting):
    done = []
    session, other = new_id(), new_id()
    for about in (session, session, other, session):
        left(team, kind, about)
    one = JobWorker(background, {kind: Kind(lambda db, project, about, revision: done.append(str(about)))})
    while one.run_next():
        pass

    assert [session, other] == done
    assert [] == waiting()


def test_what_is_put_in_a_transaction_that_fails_is_not_there(team, kind, waiting):
    with team.pool.transaction() as db:
        put(db, kind, 1, new_id())
        db.execute("SELECT 1")
        raise Rollback

    assert [] == waiting()


def test_a_job_that_fails_is_undone_says_why_without_a_secret_and_waits(team, background, kind, waiting, owned):
    secret = f"AKIA{'Q7ZB' * 4}"
    key = f"example.org/job/{kind}"

    def fails(db, *about):
        db.execute("INSERT INTO projects(key) VALUES (%s)", (key,))
        raise ValueError(f"no room \x1b[31m for {secret}")

    left(team, kind, new_id())
    one = JobWorker(background, {kind: Kind(fails)})

    assert [True, False] == [one.run_next(), one.run_next()]
    [(attempts, error, later)] = waiting()
    assert (1, True) == (attempts, later)
    assert error.startswith("ValueError: no room")
    assert "\x1b" not in error
    assert secret not in error
    assert None is owned.execute("SELECT 1 FROM projects WHERE key = %s", (key,)).fetchone()


def test_it_waits_longer_each_time_and_in_the_end_for_somebody(team, background, kind, owned):
    left(team, kind, new_id())
    one = JobWorker(background, {kind: Kind(lambda db, *about: 1 / 0)})
    waits = []
    while one.run_next():
        [(wait,)] = owned.execute("SELECT run_after - now() FROM jobs WHERE kind = %s AND isfinite(run_after)", (kind,)).fetchall() or [(None,)]  # fmt: skip
        waits.append(wait)
        if wait:
            owned.execute("UPDATE jobs SET run_after = now() WHERE kind = %s", (kind,))

    assert MAX_ATTEMPTS == len(waits)
    assert waits[-1] is None
    rising = waits[:-1]
    assert sorted(rising) == rising
    assert max(rising) <= timedelta(hours=1)
    assert rising[1] > rising[0] * 1.5


def test_a_job_whose_worker_was_killed_is_run_again(team, background, kind, waiting, owned):
    left(team, kind, new_id())
    one = JobWorker(background, {kind: Kind(lambda db, *about: None)})
    one._taken()  # and here it was killed

    assert [(1, None, True)] == waiting()
    owned.execute("UPDATE jobs SET run_after = now() WHERE kind = %s", (kind,))
    assert one.run_next()
    assert [] == waiting()


def test_a_job_that_is_being_run_is_run_by_nobody_else(team, background, kind, owned):
    left(team, kind, new_id())
    others = []

    def long(db, *about):
        owned.execute("UPDATE jobs SET error = NULL WHERE false")
        others.append(two.run_next())  # its time is past again: SKIP LOCKED alone keeps it

    one = JobWorker(background, {kind: Kind(long)})
    two = JobWorker(background, {kind: Kind(lambda db, *about: others.append("twice"))})
    taken = one._taken()
    owned.execute("UPDATE jobs SET run_after = now() WHERE kind = %s", (kind,))
    one._run(taken)

    assert [False] == others


def test_many_workers_share_the_work(team, background, kind, waiting):
    sessions = [new_id() for _ in range(40)]
    for session in sessions:
        left(team, kind, session)
    done = []
    kinds = {kind: Kind(lambda db, project, about, revision: done.append(str(about)))}

    def take():
        one = JobWorker(background, kinds)
        while one.run_next():
            pass

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(sessions) == sorted(done)


def test_what_is_done_from_time_to_time_has_one_job_and_keeps_it(background, kind, waiting):
    done = []
    kinds = {kind: Kind(lambda db, *about: done.append(about), every=timedelta(hours=1))}
    for _ in range(2):
        JobWorker(background, kinds).queue_regular_jobs()
    one = JobWorker(background, kinds)

    assert [True, False] == [one.run_next(), one.run_next()]
    assert [(None, None, None)] == done
    assert [(0, None, True)] == waiting()


@pytest.fixture
def conninfo(database, base):
    return database.conninfo(JOBS, base)


class EndedError(Exception):
    """Ends the endless loop of a worker."""


def test_a_worker_is_woken_when_there_is_work(team, background, conninfo, kind, monkeypatch):
    monkeypatch.setattr(jobs, "SLEEP_SECONDS", 3600.0)
    asleep, ended = threading.Event(), threading.Event()

    def until_next(self, most):
        if done:
            raise EndedError
        asleep.set()
        return most

    done = []
    monkeypatch.setattr(JobWorker, "seconds_until_next", until_next)

    def run():
        try:
            jobs.work(conninfo, background, threading.Lock(), {kind: Kind(lambda db, *about: done.append(about))})
        except EndedError:
            ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    asleep.wait()
    left(team, kind, new_id())

    assert ended.wait(60)
    thread.join()
    assert 1 == len(done)


def test_the_background_sees_every_session_and_who_asks_does_not(team, background):
    team.add("alice")
    session = new_id()
    team.push("alice", push_of(session, [], [record(0)]))
    count = "SELECT count(*) AS n FROM sessions WHERE project_id = %s AND id = %s"
    project = team.project("alice").id
    with background.transaction() as db:
        seen = db.execute(count, (project, session)).fetchone()
    with team.pool.transaction() as db:
        unseen = db.execute(count, (project, session)).fetchone()

    assert (1, 0) == (seen["n"], unseen["n"])


def test_who_answers_requests_cannot_become_who_works_in_the_background(app):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute("SET ROLE smartfork_jobs")


def test_what_nobody_commits_is_swept_and_what_a_session_gets_meanwhile_is_not(team, background, owned):
    team.add("alice")
    session = new_id()
    records = [record(0, secrets.token_hex(8))]
    wanted = push_of(session, [], records)
    digest = wanted.segments[0].digest
    project, alice = team.project("alice"), team.people["alice"]
    for loose in (digest, push_of(new_id(), [], [record(1, secrets.token_hex(8))]).segments[0].digest):
        with team.pool.transaction(alice.id) as db:
            segment_store.store_upload(db, project, alice, loose, zstandard.compress(b"x"), [b""])
    owned.execute("UPDATE segments SET created_at = now() - interval '25 hours' WHERE project_id = %s", (project.id,))
    owned.execute("DELETE FROM uploads WHERE project_id = %s", (project.id,))
    with team.pool.transaction(alice.id) as pushing:
        segment_store.lock_segments(pushing, project.id, [digest])
        with background.transaction() as db:
            assert 1 == segment_store.delete_old_unused(db, project.id)
    left = owned.execute("SELECT encode(digest, 'hex') FROM segments WHERE project_id = %s", (project.id,)).fetchall()

    assert [(digest,)] == left
