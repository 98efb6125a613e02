"""Full disks of the server and of a person: errors name the next step, and nothing is lost on either side."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from smart_fork.team.server.database import Database, create, make_database
from smart_fork.team.server.postgres_process import APP, OWNER
from tests.smart_fork.team.server.conftest import GIVEN
from tests.smart_fork.team.server.machines import TeamMachine, serving, team_server
from tests.smart_fork.team.server.team import Team
from tests.smart_fork.team.server.test_two_people import ANSWER, PROMPT, session_of


@contextmanager
def disk(folder, size, *options):
    """Mount a small disk in place of a folder. Only root can do it."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    folder.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", ",".join((f"size={size}", *options)), "tmpfs", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def full(folder):
    """Fill the disk to the last byte."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while file.write(b"\0" * size):
                    pass
    try:
        yield
    finally:
        filler.unlink()


@pytest.fixture
def small(database, account, open_folder):
    """A database on a small disk."""
    if GIVEN is not None:
        pytest.skip("the disk of another PostgreSQL is not ours to fill")
    with disk(open_folder / "small", "48m", f"uid={account.uid}", f"gid={account.gid}", "mode=700") as folder:
        place = folder / "space"
        place.mkdir(mode=0o700)
        os.chown(place, account.uid, account.gid)
        with psycopg.connect(database.conninfo(OWNER, "postgres"), autocommit=True) as db:
            db.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
            db.execute("CREATE DATABASE small_team TABLESPACE small")
            make_database(database.conninfo(OWNER, "postgres"), "small_team")
            with psycopg.connect(database.conninfo(OWNER, "small_team"), autocommit=True) as owned:
                create(owned)
                with Database(database.conninfo(APP, "small_team")) as pool:
                    yield folder, Team(pool, owned)
            db.execute("DROP DATABASE small_team WITH (FORCE)")
            db.execute("DROP TABLESPACE small")


@pytest.mark.slow
def test_a_full_disk_of_the_server_is_said_and_the_same_command_completes_when_there_is_room(small, tmp_path, capsys):
    folder, team = small
    team.add("alice")
    machine = TeamMachine(tmp_path / "alice", "shop", team, capsys)
    words = [os.urandom(150_000).hex() if number % 2 else f"go on {number}" for number in range(4)]
    with serving(team_server(team.pool)) as url:
        machine.invited(url, "alice")
        log = session_of(machine, "claude", *words)
        with full(folder):
            refused = machine.do("team", "push", log, "--yes", "--json")
        tracked = machine.repository / ".smart-fork/tracking.json"  # there if it had got as far as to begin
        kept = list(machine.tracking()["begun"].values()) if tracked.exists() else []
        done = machine.team("push", log, "--yes")

    said = json.loads(refused.out)
    assert (1, "The disk of the server is full: nothing was changed.") == (refused.code, said["error"])
    assert "free space" in said["hint"]
    assert kept in ([], [done["session_id"]])
    assert 4 == done["record_count"]
    assert 4 == len(team.stored(done["session_id"]))


@pytest.mark.thorough
def test_a_full_disk_of_a_person_is_said_and_nothing_is_sent_or_left(team, alice, address, tmp_path, capsys):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")["session_id"]
    with disk(tmp_path / "second", "24m") as home:
        machine = TeamMachine(home / "alice", "shop", team, capsys)
        machine.invited(address, "alice")
        log = session_of(machine, "claude", PROMPT, ANSWER)
        machine.team("status")
        for words in (("push", log, "--yes"), ("pull", pushed), ("branch", pushed), ("fork", pushed, "--force")):
            before = _files(home)
            with full(home):
                refused = machine.do("team", *words, "--json")
            assert before == _files(home), words
            said = json.loads(refused.out)
            assert (1, True) == (refused.code, "No space left" in said["error"] and "Make room" in said["hint"]), (
                words,
                said,
            )
            assert (
                1
                == team.owned.execute(
                    "SELECT count(*) FROM sessions WHERE owner_id = %s", (team.people["alice"].id,)
                ).fetchone()[0]
            )
        pulled = machine.team("pull", pushed)
        assert machine.team("push", log, "--yes")["created"]
        assert Path(pulled["files"][0]).exists()


def _files(home):
    """Return all files with their content. A database without rows counts as none."""
    files = (path for path in home.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return {path: data for path in files if (data := path.read_bytes()) or path.name != "state.db"}
