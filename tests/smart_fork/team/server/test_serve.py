"""The whole server as processes: started, killed in parts, and ended without leftovers."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import psutil
import psycopg
import pytest
from typer.testing import CliRunner

from indexer.environment import Setting
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed, ProgramMissing, Usage
from smart_fork.team import wire
from smart_fork.team.client import Client
from smart_fork.team.commands.team_group import app
from smart_fork.team.server import ServerOptions, how_to_install, jobs
from smart_fork.team.server import database as databases
from smart_fork.team.server.__main__ import serve
from smart_fork.team.server.database import Database
from smart_fork.team.server.postgres_process import OWNER, Cluster, Programs, SystemUser
from smart_fork.team.stored_logins import Account as Person
from tests.smart_fork.team.server.conftest import copied
from tests.smart_fork.team.server.team import Team, handed_over, new_id, push_of, record
from tests.smart_fork.team.server.test_cluster import until
from tests.support import forkserver
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("team-servers")]


class Running:
    """A running server, started by `subprocess.Popen` or, faster, as a fork."""

    def __init__(
        self, folder, installed, *options: str, start=forkserver.Popen, python=sys.executable, stderr=subprocess.PIPE
    ) -> None:
        said = {"listen": "127.0.0.1:0", "data": str(folder), "programs": str(installed.folder), "as_json": True}
        said |= ({"run_as": "nobody"} if os.geteuid() == 0 else {}) | handed_over(options)
        given = {
            variable: said.pop(name, None)
            for name, variable in (("dsn", Setting.TEAM_DSN), ("read_dsn", Setting.TEAM_READ_DSN))
        }
        self.process = start(
            [python, "-P", "-m", "smart_fork.team.server", json.dumps(said)],
            stdout=subprocess.PIPE, stderr=stderr, text=True,
            env={**os.environ, **{name: value for name, value in given.items() if value}},
        )  # fmt: skip
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        self.told = json.loads(line)
        self.family = psutil.Process(self.process.pid).children(recursive=True)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.told["url"] + path, timeout=60) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def healthy(self) -> bool:
        return self.get("/healthz") == (200, "ok\n")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        psutil.wait_procs(self.family, 60)
        for pipe in filter(None, (self.process.stdout, self.process.stderr)):
            pipe.close()


@pytest.fixture(scope="module")
def folder(made, open_folder):
    return copied(made, open_folder / "serve").folder


@pytest.fixture(scope="module")
def started():
    servers = []
    yield servers
    for one in servers:
        one.close()


@pytest.fixture
def shared(started, folder, installed):
    """One server for all tests. It is started again if a test has ended it."""
    if not started or started[-1].process.poll() is not None:
        started.append(Running(folder, installed))
    return started[-1]


@pytest.fixture
def cli(folder):
    """Run a server command on the server's own machine."""
    return said_in(folder)


def said_in(folder):
    def said(*words):
        result = CliRunner().invoke(app, [*words, "--data", str(folder), "--json"], catch_exceptions=False)
        return json.loads(result.output)

    return said


@pytest.fixture
def packaged(installed, monkeypatch):
    """PostgreSQL's programs in a folder that the database's user can read."""
    monkeypatch.setattr("smart_fork.team.server.backup.programs", lambda: installed)
    return installed


def test_it_answers_and_a_worker_that_is_killed_is_replaced(shared):
    assert shared.healthy()
    answering(shared)[0].kill()

    assert until(shared.healthy)
    shared.family += psutil.Process(shared.process.pid).children(recursive=True)


def test_a_backup_is_restored_into_an_empty_folder(shared, cli, open_folder, packaged):
    cli("user", "add", "kept-by-backup")
    written = cli("backup", str(open_folder / "backups"))
    again = open_folder / "again"
    again.mkdir(mode=0o700)
    run_as = ["--run-as", "nobody"] if os.geteuid() == 0 else []
    if run_as:
        shutil.chown(again, "nobody", grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name)

    said = CliRunner().invoke(
        app, ["restore", written["path"], "--data", str(again), "--json", *run_as], catch_exceptions=False
    )
    assert {"path": written["path"], "withdrawals": 0} == json.loads(said.output)
    with (
        Cluster(again, SystemUser.named(*run_as[1:] or [None]), packaged).running() as there,
        psycopg.connect(there.conninfo(OWNER)) as db,
    ):
        assert db.execute("SELECT count(*) FROM users WHERE name = 'kept-by-backup'").fetchone() == (1,)


def certificate(place, name):
    """A certificate for `name` with its key, in one file."""
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}"]
    subprocess.run(
        ["openssl", *words, "-keyout", "key.pem", "-out", "cert.pem"], cwd=place, check=True, capture_output=True
    )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_a_renewed_certificate_is_read_at_sighup_while_people_are_answered(
    database, base, tmp_path, open_folder, installed
):
    certificate(tmp_path, "first")
    running = Running(
        open_folder / "renewed", installed, "--dsn", database.conninfo(OWNER, base),
        "--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"),
    )  # fmt: skip
    try:
        host, _, port = running.told["url"].removeprefix("https://").rpartition(":")
        first = ssl.get_server_certificate((host, int(port)))
        (tmp_path / "cert.pem").write_text("nonsense")
        running.process.send_signal(signal.SIGHUP)
        assert any("keeping worker" in line for line in running.process.stderr)
        assert first == ssl.get_server_certificate((host, int(port)))
        certificate(tmp_path, "second")
        running.process.send_signal(signal.SIGHUP)
        assert until(lambda: (now := ssl.get_server_certificate((host, int(port)))) != first and now)
        running.family += psutil.Process(running.process.pid).children(recursive=True)
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.process.wait(60)
        assert [] == psutil.wait_procs(running.family, 60)[1]
    finally:
        running.close()


@pytest.mark.usefixtures("packaged")
def test_a_backup_is_not_restored_under_a_server_that_runs(shared, cli, folder, tmp_path):
    written = cli("backup", str(tmp_path))

    run_as = ["--run-as", "nobody"] if os.geteuid() == 0 else []
    with pytest.raises(ForkRefused, match="Another team server uses"):
        CliRunner().invoke(app, ["restore", written["path"], "--data", str(folder), *run_as], catch_exceptions=False)


@pytest.mark.usefixtures("packaged")
def test_a_backup_that_is_not_there_is_said_before_a_database_is_made_for_it(tmp_path, shared, cli, folder):
    with pytest.raises(NotFound, match="No such backup") as missing:
        CliRunner().invoke(
            app, ["restore", str(tmp_path / "none"), "--data", str(tmp_path / "new")], catch_exceptions=False
        )
    (tmp_path / "file").touch()
    with pytest.raises(Usage, match="cannot be written") as refused:
        cli("backup", str(tmp_path / "file"))

    assert not (tmp_path / "new").exists()
    assert all("team backup DIR" in error.value.hint for error in (missing, refused))


def test_a_database_that_takes_no_connections_yet_is_asked_again_when_it_does(tmp_path, monkeypatch):
    asked = []

    def connected(conninfo):
        asked.append(conninfo)
        if len(asked) == 1:
            raise psycopg.OperationalError("the database system is starting up")
        raise psycopg.OperationalError("no such user")

    monkeypatch.setattr("smart_fork.team.server.database._connected", connected)
    with pytest.raises(ProgramFailed, match="no such user"), databases.owner_transaction(tmp_path):
        pass

    assert 2 == len(asked)


def postmaster_of(folder):
    account = SystemUser(folder.stat().st_uid, folder.stat().st_gid, "")
    return Cluster(folder, account, Programs(Path(), 0)).postmaster()


def test_people_are_let_in_on_its_own_machine_and_by_it(shared, cli):
    told = cli("user", "add", "alice", "--admin")
    body = json.dumps({"invite": told["invite"], "machine": "laptop"}).encode()
    with urllib.request.urlopen(f"{shared.told['url']}/v1/login", body, timeout=60) as answer:  # noqa: S310
        token = json.loads(answer.read())
    cli("user", "member", "alice", "writer", "--project", "example.org/shop", "--make")
    [alice] = [one for one in cli("user", "list")["users"] if one["name"] == "alice"]
    [known] = [one for one in cli("user", "token", "list")["tokens"] if one["user"] == "alice"]

    strange = urllib.request.Request(f"{shared.told['url']}/v1/projects/%C3%A9.example.org/x/sessions")  # noqa: S310
    strange.add_header("Authorization", f"Bearer {token['token']}")

    with pytest.raises(urllib.error.HTTPError) as refused:  # a codec is needed, whose folder may be closed by now
        urllib.request.urlopen(strange, timeout=60)  # noqa: S310
    refused.value.close()
    assert 400 == refused.value.code
    assert ("alice", "admin") == (token["user"], token["scope"])
    assert ("admin", {"example.org/shop": "writer"}) == (alice["role"], alice["projects"])
    assert ("alice", "laptop", False) == (known["user"], known["machine"], known["revoked"])
    cli("user", "token", "revoke", str(known["id"]))
    cli("user", "member", "alice", "none", "--project", "example.org/shop")
    cli("user", "disable", "alice")
    assert [True] == [one["revoked"] for one in cli("user", "token", "list")["tokens"] if one["id"] == known["id"]]
    assert (True, {}) in [(one["disabled"], one["projects"]) for one in cli("user", "list")["users"]]


OLD = [record(number) for number in range(4)]
MORE = [record(number, "more") for number in range(2)]
LEFT = [OLD[0], *OLD[2:]]


class Asker:
    """A client of a server in processes, with access to its database."""

    def __init__(self, shared, cli, cluster) -> None:
        name = f"asker-{new_id()[:8]}"
        told = cli("user", "add", name)
        self.key, self.cluster, self._conninfo = f"example.org/{name}", cluster, cluster.conninfo(OWNER)
        cli("user", "member", name, "writer", "--project", self.key, "--make")
        with Client(Person(shared.told["url"], "", "")) as nobody:
            token = nobody.login(told["invite"], "laptop").token
        self.client = Client(Person(shared.told["url"], name, token), pauses=())
        self.session, self.child = new_id(), new_id()
        self.client.push(self.key, push_of(self.session, [], OLD))

    @contextlib.contextmanager
    def waiting(self, table):
        """Block all writers in the midst of a transaction, for the time of this context."""
        with psycopg.connect(self._conninfo) as db:
            db.execute(f"LOCK TABLE {table} IN SHARE MODE")
            yield lambda: db.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0]
            with contextlib.suppress(psycopg.OperationalError):  # it was killed, and the lock is gone with it
                db.rollback()

    def commands(self):
        """Return the requests to try, each with the records before and after it, and its session."""
        cut = wire.Rewrite(kind="cut", revision=1, edits=(wire.RecordEdit(old=sha256(OLD[1]).hexdigest()),))
        branch = wire.Branch(verb="branch", id=self.child, source_id=self.session, count=3)
        return {
            "push": (
                lambda: self.client.push(self.key, push_of(self.session, OLD, MORE)),
                self.session,
                OLD,
                OLD + MORE,
            ),
            "branch": (lambda: self.client.branch(self.key, branch), self.child, [], OLD[:3]),
            "rewrite": (lambda: self.client.rewrite(self.key, self.session, cut), self.session, OLD, LEFT),
        }

    def hurry(self):
        """Skip the ten seconds that a killed worker's job waits before its next attempt."""
        with psycopg.connect(self._conninfo, autocommit=True) as db:
            db.execute("UPDATE jobs SET run_after = now() WHERE session_id = %s", (self.session,))
            db.execute("SELECT pg_notify(%s, '')", (jobs.CHANNEL,))

    def stored(self, session):
        with psycopg.connect(self._conninfo) as db, contextlib.ExitStack() as stack:
            team = Team(stack.enter_context(Database(self._conninfo, 2)), db)
            return team.stored(session)

    def indexed(self):
        with psycopg.connect(self._conninfo) as db:
            asked = "SELECT count(*), count(DISTINCT position) FROM placements WHERE session_id = %s"
            return db.execute(asked, (self.session,)).fetchone()


@pytest.fixture
def asker(shared, cli, folder, installed):
    account = SystemUser.named("nobody" if os.geteuid() == 0 else None)
    one = Asker(shared, cli, Cluster(folder, account, installed))
    yield one
    one.client.__exit__(None, None, None)


def answering(shared):
    """Return the ids of the server processes that answer now. Earlier ones may have been replaced."""
    started = psutil.Process(shared.process.pid).children()
    return [one for one in started if one.name() != "postgres" and one.pid not in shared.told["work"]]


def parts(shared, cluster):
    """Return the server's processes by purpose."""
    works = [psutil.Process(pid) for pid in shared.told["work"]]
    return {"app": answering(shared), "worker": works, "postmaster": [cluster.postmaster()]}


@pytest.mark.thorough  # waits a minute for the next worker; test_killed_server.py kills in the middle of each
@pytest.mark.parametrize("verb", full_or_sample(["push", "branch", "rewrite"], ["push"]))
def test_what_is_asked_for_while_its_worker_is_killed_is_there_whole_or_not_and_once_when_asked_again(
    shared, asker, verb
):
    ask, session, old, new = asker.commands()[verb]
    with ThreadPoolExecutor(1) as pool, asker.waiting("audit") as waits:
        asked = pool.submit(ask)
        until(waits)
        killed = parts(shared, asker.cluster)["app"]
        for one in killed:
            one.kill()
        psutil.wait_procs(killed)
        asked.exception()
    until(shared.healthy)

    assert asker.stored(session) in (old, new)
    done = ask()
    assert (new, len(new)) == (asker.stored(session), done.session.record_count)
    shared.family += psutil.Process(shared.process.pid).children(recursive=True)


@pytest.mark.parametrize(
    ("victim", "name"), thorough_except_first([("postmaster", "PostgreSQL"), ("worker", "The background process")])
)
def test_without_its_database_or_its_background_a_server_ends_and_the_next_one_leaves_nothing_half(
    made, installed, open_folder, victim, name
):
    """Systemd and containers start the server again."""
    folder = copied(made, open_folder / f"ends-{victim}").folder
    running = Running(folder, installed)
    asker = Asker(running, said_in(folder), Cluster(folder, made.account, installed))
    try:
        until(lambda: (4, 4) == asker.indexed())  # all that was there before
        with asker.waiting("placements") as waits:
            asker.client.push(asker.key, push_of(asker.session, OLD, MORE))
            until(waits)
            for one in parts(running, asker.cluster)[victim]:
                one.kill()
            assert 1 == running.process.wait(60)
        assert f"error: {name} has ended, so the server ends." in running.process.stderr.read()
        assert [] == psutil.wait_procs(running.family, 60)[1]
        running.close()
        running = Running(folder, installed)
        asker.hurry()
        assert (6, 6) == until(lambda: (found := asker.indexed()) != (4, 4) and found)
    finally:
        asker.client.__exit__(None, None, None)
        running.close()


def test_nothing_is_left_when_it_is_told_to_end(shared, folder):
    family = psutil.Process(shared.process.pid).children(recursive=True)
    for one in (shared.process.pid, *shared.told["work"]):  # as a signal to their group does
        os.kill(one, signal.SIGTERM)

    assert 0 == shared.process.wait(60)
    assert ([], 2) <= (psutil.wait_procs(family, 60)[1], len(family))
    assert [] == [one for one in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(one.info["cmdline"] or ())]


def test_nothing_is_left_when_it_is_killed(folder, shared):
    shared.process.kill()
    gone, left = psutil.wait_procs(shared.family, 60)
    shared.close()
    postmaster = postmaster_of(folder)
    postmaster.terminate()  # the next server would start it anew
    postmaster.wait(60)

    assert [] == left
    assert len(gone) >= 2


def test_a_database_of_ones_own_is_used_by_several_servers_at_once(database, base):
    """Each server creates missing tables, waits for the other, and uses roles that own nothing."""
    dsn = database.conninfo(OWNER, base)
    roles = [databases.external_database(dsn) for _ in range(2)]
    with databases.owner_transaction(Path("/nonexistent"), dsn) as db:
        assert db.execute("SELECT count(*) AS n FROM users").fetchone()["n"] >= 0

    assert dsn == roles[0].app == roles[1].jobs


def test_who_owns_no_table_serves_a_database_that_has_them(database, base):
    databases.with_tables(database.conninfo(database=base))


@pytest.mark.usefixtures("base")  # which makes the users of a server
def test_a_user_who_may_make_no_table_is_told_what_is_needed(database):
    with (
        psycopg.connect(database.conninfo(OWNER, "postgres"), autocommit=True) as db,
        contextlib.suppress(psycopg.errors.DuplicateDatabase),
    ):
        db.execute("CREATE DATABASE empty")
    with pytest.raises(ProgramFailed, match="cannot be made") as failed:
        databases.with_tables(database.conninfo("smartfork_app", "empty"))

    assert "CREATEROLE" in failed.value.hint


@pytest.mark.parametrize("dsn", ["host=/nonexistent", "nonsense", "postgresql://u:topsecret@127.0.0.1:1/x"])
def test_a_database_that_does_not_answer_is_said_without_its_password(dsn):
    with pytest.raises(ProgramFailed) as failed:
        databases.external_database(dsn)

    assert "topsecret" not in failed.value.message + failed.value.hint


def test_a_certificate_that_is_none_is_said_before_anybody_is_answered(database, base, tmp_path, open_folder):
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).write_text("nonsense")
    run_as = "nobody" if os.geteuid() == 0 else None
    options = ServerOptions(
        "127.0.0.1:0", data=open_folder / "certified", dsn=database.conninfo(OWNER, base),
        tls_cert=str(tmp_path / "c.pem"), tls_key=str(tmp_path / "k.pem"), run_as=run_as,
    )  # fmt: skip
    with pytest.raises(ProgramFailed, match="cannot be used"):
        serve(options, lambda told: None)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("smart_fork.team.server.find_spec", lambda name: None)
    for words in (["serve"], ["user", "list"]):
        result = CliRunner().invoke(app, words)
        assert isinstance(result.exception, ProgramMissing)
        assert how_to_install() == result.exception.hint


def test_a_server_that_does_not_run_is_said(tmp_path):
    with pytest.raises(ProgramFailed, match="No team server"), databases.owner_transaction(tmp_path / "none"):
        pass
    with pytest.raises(ProgramFailed, match="No answer from"), databases.owner_transaction(tmp_path):
        pass
