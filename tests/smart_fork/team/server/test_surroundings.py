"""A server in unusual places: in folders that other users may not enter, and with a log that no process reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smart_fork.errors import Usage
from smart_fork.team.commands.team_group import app
from smart_fork.team.server import ServerOptions
from smart_fork.team.server.__main__ import serve
from smart_fork.team.server.postgres_process import Cluster, Programs, SystemUser
from tests.smart_fork.team.server.conftest import copied
from tests.smart_fork.team.server.test_cluster import until
from tests.smart_fork.team.server.test_serve import Asker, Running, postmaster_of
from tests.support.cases import thorough_except_first

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("team-servers")]

ROOT = Path(__file__).resolve().parents[4]
AS_ANOTHER = pytest.mark.skipif(os.geteuid() != 0, reason="only root serves as another user")


@pytest.fixture
def folder(made, open_folder, request):
    return copied(made, open_folder / request.node.name.replace("[", "-").rstrip("]")).folder


@pytest.fixture
def cli(folder):
    def said(*words):
        result = CliRunner().invoke(app, [*words, "--data", str(folder), "--json"], catch_exceptions=False)
        return json.loads(result.output)

    return said


@pytest.fixture
def unread():
    """The end of a full pipe without a reader."""
    source, target = os.pipe()
    os.set_blocking(target, False)
    try:
        while os.write(target, b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(target, True)
    yield target
    os.close(target)
    os.close(source)


@pytest.fixture
def closed(tmp_path):
    """A Python with all packages, in a folder that only root can enter."""
    tmp_path.chmod(0o700)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(tmp_path / "venv")], check=True)
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    for name, place in (("code", ROOT), ("packages", Path(sysconfig.get_path("purelib")))):
        (tmp_path / name).symlink_to(place)
    packages.joinpath("closed.pth").write_text(f"{tmp_path / 'code'}\n{tmp_path / 'packages'}\n")
    return tmp_path / "venv/bin/python"


@pytest.mark.thorough
def test_a_server_whose_database_was_killed_ends_where_nobody_reads_what_is_logged(folder, installed, unread):
    """A service manager starts it again."""
    running = Running(folder, installed, stderr=unread)
    try:
        postmaster_of(folder).kill()

        assert 1 == running.process.wait(60)
    finally:
        running.close()


@AS_ANOTHER
@pytest.mark.thorough
def test_code_that_the_user_may_not_read_is_imported_before_and_people_are_served(folder, installed, cli, closed):
    running = Running(folder, installed, python=closed)
    try:
        assert running.healthy()
        account = SystemUser.named("nobody")
        asker = Asker(running, cli, Cluster(folder, account, installed))
        until(lambda: (4, 4) == asker.indexed())
        asker.client.__exit__(None, None, None)
    finally:
        running.close()


@AS_ANOTHER
def test_programs_in_a_closed_folder_are_refused_with_the_folder_before_anything_is_made(unmade, tmp_path, installed):
    tmp_path.chmod(0o700)
    (tmp_path / "bin").symlink_to(installed.folder)
    cluster = Cluster(unmade.folder, unmade.account, Programs(tmp_path / "bin", installed.major))
    with pytest.raises(Usage, match="nobody may not enter /") as refused, cluster.running():
        pass

    assert not unmade.folder.exists()
    assert "PostgreSQL's programs" in refused.value.message
    assert "/opt/smart-fork" in refused.value.hint


@AS_ANOTHER
@pytest.mark.parametrize("dsn", thorough_except_first([None, "host=/nonexistent"]))
def test_a_data_folder_in_a_closed_one_is_refused_with_the_closed_one(tmp_path, installed, dsn, monkeypatch):
    monkeypatch.setattr("smart_fork.team.server.database.with_tables", lambda conninfo: [])
    data = tmp_path / "closed" / "team"
    tmp_path.chmod(0o755)
    data.parent.mkdir(mode=0o700)

    options = ServerOptions("127.0.0.1:0", data=data, dsn=dsn, run_as="nobody", programs=installed.folder)
    with pytest.raises(Usage) as refused:
        serve(options, print)
    assert not data.exists()
    assert f"nobody may not enter {closed_one(data)}, and {data} is in there." == refused.value.message
    assert "--data, such as /" in refused.value.hint


def closed_one(path):
    """Return the first parent folder that only its owner can enter."""
    return next(one for one in reversed(path.parents) if not one.stat().st_mode & 0o005)


@AS_ANOTHER
def test_who_has_given_up_the_rights_of_root_is_in_no_group_but_its_own():
    done = subprocess.run(
        [sys.executable, "-c", _GIVEN_UP], capture_output=True, text=True, check=True, cwd=ROOT, extra_groups=[4713]
    )
    assert "(4711, 4711, 4711) (4712, 4712, 4712) []\n" == done.stdout


_GIVEN_UP = """
import os
from smart_fork.team.server import processes
processes.import_all = lambda: None  # which has a test of its own
processes.give_up_rights((4711, 4712))
print(os.getresuid(), os.getresgid(), os.getgroups())
"""


def test_nothing_is_left_to_import_once_the_rights_are_given_up():
    """Python's folder may be closed to the server's user, as root's home is."""
    done = subprocess.run([sys.executable, "-c", _IMPORTED], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "[]\n" == done.stdout


_IMPORTED = """
import os, sys, tempfile
from pathlib import Path
from smart_fork.team.server import processes, search
search.embed_questions = lambda texts: None  # which has a test of its own
processes.import_all()
before = set(sys.modules)
from smart_fork.agents import AGENTS
from smart_fork.agents.portable_records import HomePlace
from smart_fork.sharing import round_trip
from smart_fork.sharing.canonical import encode
from smart_fork.team import searchable_session
said = {"type": "user", "uuid": "r0", "parentUuid": None, "timestamp": "2026-07-01T10:00:00.000Z", "cwd": "/srv/shop/\U0001f600",
        "message": {"role": "user", "content": "caf\xe9"}}
record = encode(AGENTS.converter_of("claude").outgoing(said, HomePlace("/srv/shop", "/home/ada")))
round_trip.read_back("claude", [record])
searchable_session.searchable_form([record], "claude", "0", "0")
print(sorted(set(sys.modules) - before))
"""
