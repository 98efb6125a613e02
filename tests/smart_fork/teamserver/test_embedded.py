"""The embedded database, run for real: made, started, killed, taken over, stopped."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg
import pytest

from smart_fork.errors import ForkRefused, ProgramFailed, ProgramMissing, Usage
from smart_fork.teamserver import cluster as clusters
from smart_fork.teamserver import installed
from smart_fork.teamserver.cluster import OWNER, Account, Cluster, programs
from smart_fork.teamserver.embedded import Embedded
from smart_fork.teamserver.keeper import cluster_of, described

FRESH = "DROP TABLE IF EXISTS kept; CREATE TABLE kept(n int)"
OWNING = """
import sys
from smart_fork.teamserver.embedded import Embedded
from smart_fork.teamserver.keeper import cluster_of
with Embedded(cluster_of(sys.argv[1])) as embedded:
    print(embedded.keeper, embedded.cluster.postmaster().pid, flush=True)
    sys.stdin.read()
"""


def ask(embedded: Embedded | Cluster, statement: str):
    with psycopg.connect(embedded.conninfo(OWNER, "postgres"), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else None


def until(condition):
    """Ends when the thing has happened; the suite's own limit of time ends a test for which it never does."""
    while not (seen := condition()):
        time.sleep(0.05)
    return seen


def numbers(embedded: Embedded):
    try:
        return ask(embedded, "SELECT n FROM kept ORDER BY n")
    except psycopg.OperationalError:
        return None


@pytest.fixture
def owner(cluster):
    """A process that owns the database, with the numbers of its keeper and its postmaster."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNING, described(cluster)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    keeper, postmaster = (psutil.Process(int(number)) for number in process.stdout.readline().split())
    yield process, keeper, postmaster
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        pipe.close()


def test_a_database_is_made_asked_and_found_again(unmade):
    with Embedded(unmade) as embedded:
        ask(embedded, FRESH)
        ask(embedded, "INSERT INTO kept VALUES (7)")
        postmaster = unmade.postmaster()
        keeper = psutil.Process(embedded.keeper)

    assert not postmaster.is_running()
    assert not keeper.is_running()
    with Embedded(unmade) as embedded:
        assert [(7,)] == numbers(embedded)


def test_it_listens_to_no_network_and_its_folders_are_for_one_user(cluster, account):
    with Embedded(cluster) as embedded:
        connections = cluster.postmaster().net_connections("inet")
        assert [] == connections
        assert [("",)] == ask(embedded, "SHOW listen_addresses")
        assert all(account.owns(folder) for folder in (cluster.folder, cluster.data, cluster.sockets))
        assert cluster.postmaster().uids().real == account.uid


def test_nothing_is_left_when_the_owner_is_killed(cluster, owner):
    process, keeper, postmaster = owner
    process.kill()

    keeper.wait(60)
    assert not postmaster.is_running()
    assert cluster.postmaster() is None


def test_what_was_written_is_there_for_the_owner_after_one_that_was_killed(cluster, owner):
    process, _, postmaster = owner
    ask(cluster, FRESH)
    ask(cluster, "INSERT INTO kept VALUES (7)")
    process.kill()
    process.wait()

    with Embedded(cluster) as embedded:  # the other keeper is still at it
        assert [(7,)] == numbers(embedded)
        assert cluster.postmaster() != postmaster


def test_a_keeper_that_is_killed_is_replaced_and_the_database_runs_on(cluster, owner):
    process, keeper, postmaster = owner
    ask(cluster, FRESH)
    keeper.kill()

    another = until(lambda: [child for child in psutil.Process(process.pid).children() if child != keeper])[0]
    assert cluster.postmaster() == postmaster
    process.kill()
    another.wait(60)
    assert cluster.postmaster() is None


def test_a_database_whose_owner_and_keeper_were_killed_is_taken_over(cluster, owner):
    process, keeper, postmaster = owner
    ask(cluster, FRESH)
    process.send_signal(signal.SIGSTOP)  # so that it replaces no keeper
    keeper.kill()
    process.kill()
    process.wait()

    assert postmaster.is_running()
    with Embedded(cluster) as embedded:
        assert cluster.postmaster() == postmaster
        assert [] == numbers(embedded)
    assert not postmaster.is_running()


def test_a_postmaster_that_is_killed_is_started_again_and_nothing_is_lost(cluster):
    with Embedded(cluster) as embedded:
        ask(embedded, FRESH)
        ask(embedded, "INSERT INTO kept SELECT generate_series(1, 3)")
        first = cluster.postmaster()
        first.kill()

        assert [(1,), (2,), (3,)] == until(lambda: numbers(embedded))
        assert cluster.postmaster() != first
    assert cluster.postmaster() is None


def test_signals_of_a_terminal_do_not_end_the_keeper(cluster):
    with Embedded(cluster) as embedded:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(embedded.keeper, number)

        assert [(1,)] == ask(embedded, "SELECT 1")
        assert psutil.Process(embedded.keeper).is_running()


def test_a_second_owner_is_refused(cluster):
    with Embedded(cluster), pytest.raises(ForkRefused, match="Another team server uses"), Embedded(cluster):
        pass


def test_what_an_interrupted_beginning_left_is_made_from_the_beginning(unmade, account):
    account.make(unmade.folder)
    half = unmade.folder / "postgresql-half"
    half.mkdir()
    (half / "PG_VERSION").write_text("18")

    with Embedded(unmade) as embedded:
        assert [(1,)] == ask(embedded, "SELECT 1")
    assert not half.exists()


def test_another_major_version_is_refused_with_the_way_out(cluster):
    with Embedded(cluster):
        pass
    (cluster.data / "PG_VERSION").write_text("15\n")

    with pytest.raises(Usage, match="PostgreSQL 15 wrote") as refused, Embedded(cluster):
        pass
    assert "smart-fork team backup" in refused.value.hint
    assert "smart-fork team restore" in refused.value.hint


def test_a_folder_with_other_things_is_not_used(unmade, account):
    account.make(unmade.folder)
    (unmade.folder / "holiday.jpg").touch()

    with pytest.raises(Usage, match=r"has other files: holiday\.jpg"), Embedded(unmade):
        pass


def test_a_folder_that_others_may_read_is_not_used(unmade):
    unmade.folder.mkdir(mode=0o755)

    with pytest.raises(Usage, match="does not belong to"), Embedded(unmade):
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


def test_a_file_of_another_process_is_not_taken_for_a_postmaster(cluster):
    with Embedded(cluster):
        pass
    (cluster.data / "postmaster.pid").write_text(f"{os.getpid()}\n")

    assert cluster.postmaster() is None


def test_a_folder_of_any_name_is_no_command(open_folder, account, installed):
    strange = Cluster(open_folder / 'a\'b "c" $(touch x), d\\e', account, installed)
    with Embedded(strange) as embedded:
        assert [(1,)] == ask(embedded, "SELECT 1")
    strange.sockets.rmdir()  # it is not inside: a comma would make two of it


def test_why_it_does_not_start_is_said(cluster, monkeypatch):
    monkeypatch.setattr(clusters, "SECONDS_FOR_REMAINS", 0.0)
    cluster.create()
    (cluster.data / "pg_hba.conf").write_text("nonsense\n")

    with pytest.raises(ProgramFailed, match="did not start") as failed:
        cluster.start()
    assert "pg_hba.conf" in failed.value.hint


@pytest.mark.parametrize("lacking", [*installed.NEEDED, installed.EMBEDDED])
def test_without_the_packages_one_sentence_says_what_to_install(monkeypatch, lacking):
    found = importlib.util.find_spec
    monkeypatch.setattr(installed, "find_spec", lambda name: None if name == lacking else found(name))

    with pytest.raises(ProgramMissing, match="The team server is not installed") as missing:
        programs()
    assert installed.how_to_install() == missing.value.hint


def test_root_has_to_name_a_user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(Usage, match="does not run as root") as refused:
        Account.named(None)

    assert "--run-as USER" in refused.value.hint
    with pytest.raises(Usage, match="does not run as root"):
        Account.named("root")
    with pytest.raises(Usage, match="No user 'nemo'"):
        Account.named("nemo")


def test_who_is_not_root_runs_it_as_nobody_else(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4711)

    assert Account.named(None).uid == 4711
    with pytest.raises(Usage, match="Only root"):
        Account.named("nobody")


def test_a_user_who_cannot_read_the_programs_is_told_so(unmade, installed):
    installed = clusters.Programs(Path("/nonexistent"), installed.major)
    with pytest.raises(ProgramFailed, match="cannot run PostgreSQL's programs"):
        Cluster(unmade.folder, unmade.account, installed).create()


def test_a_keeper_keeps_the_database_that_was_described(cluster):
    assert cluster == cluster_of(described(cluster))


def test_a_folder_that_cannot_be_made_is_said_to_be_one(account):
    with pytest.raises(Usage, match="cannot be made"):
        account.make(Path("/proc/none/team"))
