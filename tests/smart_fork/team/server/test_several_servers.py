"""Several servers on one database: data of one is visible in the other immediately; mixed versions; a replica."""

from __future__ import annotations

import subprocess
from hashlib import sha256

import psycopg
import pytest

from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.team import wire
from smart_fork.team.client import Client
from smart_fork.team.server import ServerOptions, database
from smart_fork.team.server import database as databases
from smart_fork.team.server.__main__ import serve
from smart_fork.team.server.database import FORM, Database, create, make_database
from smart_fork.team.server.postgres_process import APP, OWNER, Cluster
from smart_fork.team.stored_logins import Account as Person
from tests.smart_fork.team.server.conftest import QUICK, copied
from tests.smart_fork.team.server.team import Team, new_id, push_of, record
from tests.smart_fork.team.server.test_cluster import until
from tests.smart_fork.team.server.test_serve import Running

pytestmark = pytest.mark.xdist_group("team-servers")


@pytest.fixture(scope="module")
def primary(made, open_folder):
    """A PostgreSQL that allows replicas, with the tables."""
    with copied(made, open_folder / "primary").running() as cluster:
        make_database(cluster.conninfo(OWNER, "postgres"), "smartfork")
        database.with_tables(cluster.conninfo(OWNER))
        yield cluster


@pytest.fixture(scope="module")
def replica(primary, open_folder):
    """A streaming replica of the primary."""
    copy = Cluster(open_folder / "replica", primary.account, primary.programs, QUICK)
    copy.account.make(copy.folder)
    where = ["-h", str(primary.sockets), "-U", OWNER, "-D", str(copy.data)]
    subprocess.run(
        [primary.programs["pg_basebackup"], *where, "-R", "-X", "stream", "-c", "fast"],
        check=True, capture_output=True, cwd="/", **primary.account.popen(),
    )  # fmt: skip
    with copy.running():
        yield copy


@pytest.fixture
def owner(primary):
    with psycopg.connect(primary.conninfo(OWNER), autocommit=True) as db:
        yield db


@pytest.fixture(scope="module")
def started():
    servers = {}
    yield servers
    for one in servers.values():
        one.close()


@pytest.fixture
def servers(started, primary, replica, installed, open_folder):
    """Two servers of one database. The second reads from a replica. A killed server is started again."""
    dsn = ("--dsn", primary.conninfo(OWNER))
    for name, options in (("one", dsn), ("two", (*dsn, "--read-dsn", replica.conninfo(OWNER)))):
        if name not in started or started[name].process.poll() is not None:
            started[name] = Running(open_folder / name, installed, *options)
    return started["one"], started["two"]


@pytest.fixture
def team(primary, owner):
    with Database(primary.conninfo(APP), 2) as pool:
        team = Team(pool, owner)
        for name in ("alice", "bob"):
            team.add(name)
        yield team


def asking(server, team, name):
    return Client(Person(server.told["url"], name, team.tokens[name]), pauses=())


def hits(client, team, words):
    return client.search(team.key, wire.Search(question=words, limit=5)).hits


def found(client, team, words):
    return [hit.session.id for hit in hits(client, team, words)]


@pytest.mark.slow
def test_what_one_server_takes_the_other_finds_and_what_is_withdrawn_at_one_is_gone_at_the_other(
    servers, team, owner, replica
):
    session, records = new_id(), [record(0, "zebrafish uploader"), record(1, "more of it"), record(2, "quokka")]
    with asking(servers[0], team, "alice") as alice, asking(servers[1], team, "bob") as bob:
        alice.push(team.key, push_of(session, [], records, visibility="public"))
        assert session == bob.session(team.key, session).session.id  # at once
        until(lambda: [session] == found(bob, team, "zebrafish uploader"))
        cut = wire.Rewrite(kind="cut", revision=1, edits=(wire.RecordEdit(old=sha256(records[2]).hexdigest()),))
        alice.rewrite(team.key, session, cut)
        assert "quokka" not in str(hits(bob, team, "quokka"))  # what is left of the session may still be similar
        assert 2 == bob.session(team.key, session).session.record_count
        alice.delete_everywhere(team.key, session)
        with pytest.raises(NotFound):
            bob.session(team.key, session)
        assert [] == found(bob, team, "zebrafish uploader")
    until(lambda: owner.execute("SELECT count(*) FROM jobs WHERE project_id IS NOT NULL").fetchone() == (0,))
    with psycopg.connect(replica.conninfo(OWNER)) as copy:  # the second server has asked it
        assert copy.execute("SELECT count(*) > 0 FROM pg_stat_activity WHERE query ~ 'replay_lsn'").fetchone()[0]


@pytest.mark.thorough
def test_jobs_of_many_pushes_at_two_servers_are_each_done_once(servers, team, owner):
    sessions = [new_id() for _ in range(8)]
    for number, session in enumerate(sessions):
        with asking(servers[number % 2], team, "alice") as alice:
            alice.push(team.key, push_of(session, [], [record(number, f"wombat {session}")], visibility="public"))
    counted = "SELECT sum(sessions), sum(chunks) FROM lexemes l JOIN projects p ON p.id = project_id WHERE key = %s AND lexeme = 'wombat'"
    until(lambda: owner.execute(counted, (team.key,)).fetchone() == (8, 8))
    assert [] == owner.execute("SELECT error FROM jobs WHERE error IS NOT NULL").fetchall()


@pytest.mark.parametrize(("oldest", "healthy"), [(FORM, True), (FORM + 1, False)])
def test_a_server_goes_on_beside_a_newer_version_as_long_as_that_says_so_and_is_rolled_back_to(
    servers, primary, owner, oldest, healthy
):
    owner.execute("INSERT INTO form(number, oldest) VALUES (%s, %s)", (FORM + 1, oldest))
    try:
        assert (200 if healthy else 503) == servers[0].get("/healthz")[0]
        if healthy:
            database.with_tables(primary.conninfo(OWNER))
        else:
            with pytest.raises(SmartForkError, match="A newer version of smart-fork made this database") as refused:
                database.with_tables(primary.conninfo(OWNER))
            assert "restore a backup from before" in refused.value.hint
    finally:
        owner.execute("DELETE FROM form WHERE number > %s", (FORM,))
    assert 200 == servers[0].get("/healthz")[0]


def test_a_newer_version_adds_to_the_tables_while_an_older_one_serves_and_what_was_pushed_meanwhile_stays(
    servers, team, owner, monkeypatch
):
    session, records = new_id(), [record(0, "before"), record(1, "between"), record(2, "after")]
    with asking(servers[0], team, "alice") as alice:
        alice.push(team.key, push_of(session, [], records[:1]))
        with monkeypatch.context() as newer:
            newer.setattr(databases, "FORM", FORM + 1)
            newer.setattr(databases, "STEPS", {FORM + 1: "ALTER TABLE sessions ADD stars integer NOT NULL DEFAULT 0"})
            create(owner)
            create(owner)  # a second server of that version finds it done
        try:
            assert [(FORM, FORM), (FORM + 1, FORM)] == owner.execute(
                "SELECT number, oldest FROM form ORDER BY 1"
            ).fetchall()
            alice.push(team.key, push_of(session, records[:1], records[1:2]))
            create(owner)  # rolled back: the older version starts again
            alice.push(team.key, push_of(session, records[:2], records[2:]))
            assert records == team.stored(session)
        finally:
            owner.execute("DELETE FROM form WHERE number > %s", (FORM,))
            owner.execute("ALTER TABLE sessions DROP stars")


def test_tables_without_a_way_to_this_version_are_refused(owner, monkeypatch):
    monkeypatch.setattr(databases, "FORM", FORM + 2)
    with pytest.raises(SmartForkError, match=f"form {FORM}, known {FORM + 2}"):
        create(owner)


@pytest.fixture
def reading(primary, replica):
    with Database(primary.conninfo(APP), 2, replica=replica.conninfo(APP)) as pool:
        yield pool


def is_copy(db):
    return db.execute("SELECT pg_is_in_recovery() AS copy").fetchone()["copy"]


def keys(db):
    return {row["key"] for row in db.execute("SELECT key FROM projects")}


def test_a_question_goes_to_the_replica_and_sees_what_was_just_written(reading, owner):
    for number in range(20):
        key = f"example.org/{new_id()}"
        owner.execute("INSERT INTO projects(key) VALUES (%s)", (key,))
        assert (True, True) == reading.read(0, lambda db, key=key: (is_copy(db), key in keys(db))), number


def test_a_replica_that_is_behind_is_not_asked(reading, replica, owner):
    key = f"example.org/{new_id()}"
    with psycopg.connect(replica.conninfo(OWNER), autocommit=True) as copy:
        copy.execute("SELECT pg_wal_replay_pause()")
        try:
            owner.execute("INSERT INTO projects(key) VALUES (%s)", (key,))
            assert (False, True) == reading.read(0, lambda db: (is_copy(db), key in keys(db)))
        finally:
            copy.execute("SELECT pg_wal_replay_resume()")
    assert (True, True) == reading.read(0, lambda db: (is_copy(db), key in keys(db)))


@pytest.mark.parametrize(
    "said", ["SELECT no_such_function() AS written", "SELECT pg_read_file('/etc/hosts') AS written"]
)
def test_a_database_that_does_not_say_what_it_has_written_answers_itself(reading, monkeypatch, said):
    """Some hosted databases do not report their write position."""
    monkeypatch.setattr(databases, "_WRITTEN", said)

    assert False is reading.read(0, is_copy)


def test_a_replica_that_ends_while_it_is_asked_and_later_is_down_is_replaced_by_the_primary(
    reading, replica, monkeypatch
):
    asked = []

    def ends(db):
        asked.append(is_copy(db))
        if asked[-1]:
            replica.stop()
        return is_copy(db)

    assert False is reading.read(0, ends)
    assert [True, False] == asked
    assert False is reading.read(0, is_copy)
    monkeypatch.setattr(databases, "SECONDS_WITHOUT_REPLICA", 0.0)
    replica.start()
    reading._replica_from = 0.0
    assert until(lambda: reading.read(0, is_copy))


def test_a_database_that_is_no_replica_is_not_asked(primary):
    with Database(primary.conninfo(APP), 2, replica=primary.conninfo(APP, "postgres")) as pool:
        assert "smartfork" == pool.read(
            0, lambda db: db.execute("SELECT current_database() AS name").fetchone()["name"]
        )


@pytest.mark.slow
def test_a_replica_of_the_servers_own_database_is_refused(open_folder):
    with pytest.raises(Usage, match="--read-dsn needs --dsn"):
        serve(ServerOptions("127.0.0.1:0", data=open_folder / "none", read_dsn="postgresql://x/y"), lambda told: None)


@pytest.mark.thorough
def test_one_server_that_is_killed_leaves_its_work_to_the_other(servers, team):
    servers[0].close()  # kills it
    session = new_id()
    with asking(servers[1], team, "alice") as alice:
        alice.push(team.key, push_of(session, [], [record(0, "numbat")], visibility="public"))
        until(lambda: [session] == found(alice, team, "numbat"))
