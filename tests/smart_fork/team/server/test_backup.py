"""Backups: a restore brings everything back, except what was withdrawn since. A kill leaves the old or the new
database.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from smart_fork.errors import NotFound, ProgramFailed, Usage
from smart_fork.team.server import withdrawal
from smart_fork.team.server.backup import BackupSource, backup, restore
from smart_fork.team.server.database import Database, create, make_database
from smart_fork.team.server.postgres_process import APP, OWNER, Programs
from tests.smart_fork.team.server.team import Team, new_id, push_of, record
from tests.smart_fork.team.server.test_rewrite import edits_of
from tests.support import forkserver

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RECORDS = [record(number) for number in range(10)]
KILLED = """
import os, signal, sys
from pathlib import Path
from smart_fork.team.server import backup
from smart_fork.team.server.postgres_process import Programs
conninfo, programs, major, file, at = sys.argv[1:]
does = getattr(backup, at)
def killed(*given):
    does(*given)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(backup, at, killed)
place = backup.BackupSource(conninfo, Programs(Path(programs), int(major)))
backup.restore(place, Path(file))
"""


class Kept:
    """A server's database, with helpers that query it."""

    def __init__(self, database, installed, folder):
        self.name, self.folder = "kept", folder
        self.place = BackupSource(database.conninfo(OWNER, self.name), installed)
        self._app = database.conninfo(APP, self.name)
        self._owner = database.conninfo(OWNER, "postgres")

    def make(self):
        with psycopg.connect(self._owner, autocommit=True) as db:
            db.execute("DROP DATABASE IF EXISTS kept WITH (FORCE)")
        make_database(self._owner, self.name)
        with psycopg.connect(self.place.conninfo, autocommit=True) as db:
            create(db)

    def __enter__(self):
        self._pool = Database(self._app, connections=2).__enter__()
        self._db = psycopg.connect(self.place.conninfo, autocommit=True)
        return Team(self._pool, self._db)

    def __exit__(self, *error):
        self._db.close()
        self._pool.__exit__(*error)

    def databases(self):
        with psycopg.connect(self._owner, autocommit=True) as db:
            return {name for (name,) in db.execute("SELECT datname FROM pg_database") if name.startswith("kept")}

    def records(self, session):
        with self as team:
            team.key = self.key
            return team.stored(session)


@pytest.fixture(scope="module")
def saved(database, installed, tmp_path_factory):
    """A backup with a session of Alice and Bob's fork of it. Alice has withdrawn a record since."""
    kept = Kept(database, installed, tmp_path_factory.mktemp("backups"))
    kept.make()
    with kept as team:
        kept.key = team.key
        team.add("alice")
        team.add("bob")
        kept.source = new_id()
        team.push("alice", push_of(kept.source, [], RECORDS, visibility="public"))
        kept.fork = team.branch("bob", kept.source, verb="fork").session.id
        team.push("bob", push_of(kept.fork, RECORDS, [record(50)]))
    kept.backup = backup(kept.place, kept.folder, now=NOW)
    with kept as again:
        again.key, again.people = team.key, team.people
        again.push("alice", push_of(kept.source, RECORDS, [record(60)]))
        changes = {RECORDS[3]: record(3, "[REDACTED]"), RECORDS[4]: None}
        withdrawal.rewrite(again.pool, again.key, again.people["alice"], kept.source, edits_of(changes, 2))
    return kept


OLD = [*RECORDS[:3], record(3, "[REDACTED]"), *RECORDS[5:], record(60)]
NEW = OLD[:-1]


def test_it_says_until_when_it_is_kept_and_is_nobody_elses(saved):
    assert NOW + timedelta(days=30) == saved.backup.until
    assert "smart-fork-20260301T120000Z-until-20260331.dump" == saved.backup.path.name
    assert 0o600 == saved.backup.path.stat().st_mode & 0o777
    assert saved.backup.size == saved.backup.path.stat().st_size > 1_000


def test_what_was_withdrawn_since_is_not_brought_back_to_the_session_or_to_forks(saved):
    assert 1 == restore(saved.place, saved.backup.path)

    assert NEW == saved.records(saved.source)
    assert [*NEW, record(50)] == saved.records(saved.fork)
    assert {"kept"} == saved.databases()
    with saved as team:
        team.key = team.owned.execute("SELECT key FROM projects").fetchone()[0]
        assert (2,) == team.owned.execute("SELECT count(*) FROM tombstones").fetchone()
        assert (2,) == team.owned.execute("SELECT count(*) FROM rewrites WHERE seq > 1000000000").fetchone()


@pytest.mark.parametrize("at", [pytest.param("_fill", marks=pytest.mark.thorough), "_repeat_withdrawals", "_exchange"])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_one(saved, at):
    before = saved.records(saved.source)
    with saved as team:
        team.owned.execute("COMMENT ON TABLE users IS 'the old one'")
    values = [saved.place.conninfo, saved.place.programs.folder, saved.place.programs.major]
    arguments = [*map(str, values), str(saved.backup.path), at]
    done = forkserver.run([sys.executable, "-c", KILLED, *arguments], cwd="/", env=dict(os.environ))

    assert -signal.SIGKILL == done.returncode
    with saved as team:
        old = team.owned.execute("SELECT obj_description('users'::regclass)").fetchone() == ("the old one",)
    assert (at != "_exchange") == old
    assert (before if old else NEW) == saved.records(saved.source)


def test_what_a_kill_has_left_is_taken_away_by_the_next_restore(saved, tmp_path):
    (tmp_path / "nonsense").write_bytes(b"nonsense")
    with psycopg.connect(saved.place.other("postgres"), autocommit=True) as db:
        for name in ("kept_old_0123abcd", "kept_new_0123abcd"):
            db.execute(f"CREATE DATABASE {name}")
    with pytest.raises(ProgramFailed):
        restore(saved.place, tmp_path / "nonsense")
    assert {"kept"} == saved.databases()


def test_a_server_that_runs_is_not_restored(saved, monkeypatch):
    monkeypatch.setattr("smart_fork.team.server.backup._DISCONNECT_SECONDS", 0.2)  # it never leaves
    with saved, pytest.raises(Usage, match="The server still runs"):
        restore(saved.place, saved.backup.path)
    assert {"kept"} == saved.databases()


def test_what_is_no_backup_changes_nothing(saved, tmp_path):
    before, other = saved.records(saved.source), tmp_path / "other.dump"
    other.write_bytes(b"nonsense")
    with pytest.raises(ProgramFailed, match="pg_restore has failed"):
        restore(saved.place, other)
    with pytest.raises(NotFound):
        restore(saved.place, tmp_path / "none.dump")
    with saved as team:
        team.owned.execute("ALTER TABLE tombstones RENAME TO damaged")
    with pytest.raises(ProgramFailed, match="withdrawals in kept cannot be read"):
        restore(saved.place, saved.backup.path)
    with saved as team:
        team.owned.execute("ALTER TABLE damaged RENAME TO tombstones")
    assert {"kept"} == saved.databases()
    assert before == saved.records(saved.source)


def test_a_password_of_the_environment_reaches_the_programs_as_it_reaches_the_server(tmp_path, monkeypatch):
    (tmp_path / "pg_dump").write_text('#!/bin/sh\necho "said: $PGPASSWORD" >&2\nexit 1\n')
    (tmp_path / "pg_dump").chmod(0o700)
    place = BackupSource("postgresql://forks@127.0.0.1/forks", Programs(tmp_path, 17))
    monkeypatch.setenv("PGPASSWORD", "p@ss/w#rd")
    with pytest.raises(ProgramFailed) as failed:
        backup(place, tmp_path, now=NOW)
    assert "said: p@ss/w#rd" == failed.value.hint


@pytest.mark.thorough
def test_backups_that_have_expired_are_taken_away_and_nothing_else(saved, tmp_path):
    first = backup(saved.place, tmp_path, now=NOW, days=2)
    others = [tmp_path / "notes.dump", tmp_path / "smart-fork-mine.dump"]
    for path in others:
        path.write_text("kept")

    assert () == backup(saved.place, tmp_path, now=NOW + timedelta(days=2)).removed
    assert (first.path,) == backup(saved.place, tmp_path, now=NOW + timedelta(days=3)).removed
    assert all(path.is_file() for path in others)
    with pytest.raises(Usage, match="at least one day"):
        backup(saved.place, tmp_path, now=NOW, days=0)
    with pytest.raises(Usage, match="cannot be written"):
        backup(saved.place, tmp_path, now=NOW + timedelta(days=3))
