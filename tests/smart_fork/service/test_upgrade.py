"""A newer version is installed under the running service."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import psutil
import pytest

from indexer.safe_files import state_home
from smart_fork.cli.service.client import Service, find_service
from smart_fork.cli.service.server import QUIET_SECONDS, REQUEST_SECONDS, STREAM_SECONDS, Traffic
from smart_fork.cli.service.token import token
from smart_fork.cli.service.upgrade import LOOK_SECONDS, SOON_SECONDS, Upgrade
from smart_fork.system import version
from smart_fork.system.version import Release
from tests.smart_fork.forks import eventually
from tests.support.processes import kill_if_running

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
OLD, NEW = Release("1.2", (1,)), Release("1.3", (2,))


class Watched:
    """An upgrade in surroundings that a test sets: the installed version, whether it may end, and the time."""

    def __init__(self) -> None:
        self.found: Release | None = OLD
        self.may = True
        self.time = 0.0
        self.waited: list[float] = []
        self.restarts = 0
        self.upgrade = Upgrade(self.allowed, self.restarted, lambda: self.found, lambda: self.time)

    def allowed(self, waited: float) -> bool:
        self.waited.append(waited)
        return self.may

    def restarted(self) -> None:
        self.restarts += 1


def test_nothing_happens_as_long_as_the_same_is_installed():
    watched = Watched()

    assert {LOOK_SECONDS} == {watched.upgrade.step() for _ in range(5)}
    assert (0, None) == (watched.restarts, watched.upgrade.pending)


def test_what_is_installed_counts_when_it_is_the_same_at_two_looks():
    """A package is written file by file."""
    watched = Watched()
    for found in (None, Release("1.3", (1,)), NEW):
        watched.found = found
        watched.upgrade.step()
    assert 0 == watched.restarts

    assert SOON_SECONDS == watched.upgrade.step()
    assert 1 == watched.restarts


def test_it_waits_until_it_may_and_says_so_meanwhile():
    watched = Watched()
    watched.found, watched.may = NEW, False
    for watched.time in (0.0, 5.0, 10.0):
        watched.upgrade.step()

    assert {"from": "1.2", "to": "1.3"} == watched.upgrade.pending
    assert ([0.0, 5.0], 0) == (watched.waited, watched.restarts)
    watched.may = True
    for _ in range(3):
        watched.upgrade.step()
    assert 1 == watched.restarts


def test_what_is_taken_back_is_no_upgrade():
    watched = Watched()
    watched.found, watched.may = NEW, False
    watched.upgrade.step()
    watched.upgrade.step()
    watched.found = OLD
    watched.upgrade.step()

    assert (0, None) == (watched.restarts, watched.upgrade.pending)


class TestTraffic:
    @pytest.fixture
    def time(self) -> list[float]:
        return [0.0]

    def during(self, time: list[float], method: str, path: str, waited: float) -> list[bool]:
        """Return whether the service may end during a request, and after some quiet time."""
        seen = []

        async def app(scope, receive, send):
            seen.append(traffic.may_end(waited))

        traffic = Traffic(app, clock=lambda: time[0])
        time[0] += QUIET_SECONDS
        anyio.run(traffic, {"type": "http", "method": method, "path": path}, None, None)
        time[0] += QUIET_SECONDS
        return [*seen, traffic.may_end(0)]

    def test_a_request_is_waited_for(self, time):
        assert [False, True] == self.during(time, "POST", "/mcp", REQUEST_SECONDS - 1)

    def test_who_only_listens_is_not_waited_for_so_long(self, time):
        assert [False, True] == self.during(time, "GET", "/mcp", STREAM_SECONDS - 1)
        assert [True, True] == self.during(time, "GET", "/mcp", STREAM_SECONDS)

    def test_a_client_may_ask_again_soon(self, time):
        traffic = Traffic(None, clock=lambda: time[0])
        time[0] += QUIET_SECONDS - 1
        assert not traffic.may_end(0)

    def test_who_looks_whether_it_is_there_does_not_keep_it(self, time):
        async def app(scope, receive, send):
            time[0] += 1

        traffic = Traffic(app, ["/healthz"], lambda: time[0])
        for _ in range(int(QUIET_SECONDS)):
            assert not traffic.may_end(0)
            anyio.run(traffic, {"type": "http", "method": "GET", "path": "/healthz"}, None, None)
        assert traffic.may_end(0)


class Folder:
    """A folder of packages that contains smart-fork as installers write it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def install(self, version: str, **files: str) -> None:
        for old in self.path.glob("*.dist-info"):
            old.rename(self.path / f"~{old.name}-old")
        there = self.path / f"smart_fork-{version}.dist-info"
        there.mkdir()
        texts = {"METADATA": f"Metadata-Version: 2.1\nName: smart-fork\nVersion: {version}\n"} | files
        texts["RECORD"] = "".join(f"{there.name}/{name},,\n" for name in [*texts, "RECORD"])
        for name, text in texts.items():
            (there / name).write_text(text)


@pytest.fixture
def packages(tmp_path, monkeypatch) -> Folder:
    folder = Folder(tmp_path / "packages")
    monkeypatch.syspath_prepend(str(folder.path))
    return folder


def test_what_is_installed_is_looked_up_anew_each_time(packages):
    packages.install("1.2")
    first = Release.installed()
    packages.install("1.3")

    assert ("1.2", "1.3") == (first.version, Release.installed().version)
    assert len({first, Release.installed()}) == 2
    assert Release.installed() == Release.installed()


def test_the_same_version_installed_again_is_another_installation(packages):
    packages.install("1.2")
    first = Release.installed()
    metadata = packages.path / "smart_fork-1.2.dist-info/METADATA"
    os.utime(metadata, ns=(1, 1))

    assert first != Release.installed()
    assert first.version == Release.installed().version


def test_of_a_checkout_only_the_version_counts(packages):
    packages.install("1.2", **{"direct_url.json": '{"url": "file:///x", "dir_info": {"editable": true}}'})

    assert Release("1.2") == Release.installed()


def test_half_an_installation_is_none(packages, monkeypatch):
    packages.install("1.2")
    (packages.path / "smart_fork-1.2.dist-info/METADATA").unlink()
    monkeypatch.setattr(sys, "path", [str(packages.path)])
    assert Release.installed() is None
    monkeypatch.setattr(sys, "path", [])
    assert Release.installed() is None


#: A service that looks often and counts its looks; its version 1 has a child, its version 3 does not start.
SERVE = """
import os, subprocess, sys
from pathlib import Path
from smart_fork.system import version
from smart_fork.cli.service import request_guard, server, upgrade
if version.own_version() == "3":
    sys.exit(7)
if version.own_version() == "1":
    subprocess.Popen(["sleep", "600"])
looks, look = Path(sys.argv[1]), version.Release.installed
def counted():
    with looks.open("a") as file:
        file.write(".")
    return look()
upgrade.Upgrade.__init__.__defaults__ = (counted, *upgrade.Upgrade.__init__.__defaults__[1:])
request_guard.BODY_SECONDS = 100.0
upgrade.LOOK_SECONDS = upgrade.SOON_SECONDS = server.QUIET_SECONDS = 0.1
from smart_fork.cli.service.server import serve
serve()
os._exit(0)  # as the command does: a thread may still be in the model
"""


@pytest.fixture
def service(home, packages, tmp_path, monkeypatch) -> Iterator[subprocess.Popen]:
    """Run a real service of version 1."""
    packages.install("1")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        env = {"PYTHONPATH": f"{packages.path}{os.pathsep}{ROOT}", "SMART_FORK_PORT": str(free.getsockname()[1])}
    argv = [sys.executable, "-c", SERVE, str(tmp_path / "looks")]
    with subprocess.Popen(argv, env=os.environ | env, cwd="/") as process:
        yield process
        for child in psutil.Process(process.pid).children() if process.poll() is None else ():
            kill_if_running(child)
        process.kill()


def of_version(wanted: str) -> Service:
    def found() -> Service | None:
        service = find_service()
        return service if service is not None and service.status.version == wanted else None

    return eventually(found, 60)


def test_the_service_becomes_the_newer_version_once_and_in_the_middle_of_nothing(service, packages, tmp_path):
    first = of_version("1")
    secret, port, pid = token(), first.address.port, first.address.pid
    body = json.dumps({"session_id": "one"}).encode()
    head = f"POST /api/hooks/claude/stop HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {secret}\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", port)) as asking:
        asking.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:-1])
        packages.install("2")
        eventually(lambda: find_service().status.restart == {"from": "1", "to": "2"}, 60)
        assert first.address == find_service().address
        asking.sendall(body[-1:])
        assert b"".join(iter(lambda: asking.recv(65536), b"")).startswith(b"HTTP/1.1 200")

    second = of_version("2").address

    assert (port, pid, service.pid, secret) == (second.port, second.pid, second.pid, token())
    looked = (tmp_path / "looks").stat().st_size
    eventually(lambda: (tmp_path / "looks").stat().st_size > looked + 5, 60)
    assert second == find_service().address
    log = (state_home() / "logs/service.log").read_text()
    assert (1, 2) == (log.count("restarting"), log.count("serving at"))
    (child,) = psutil.Process(service.pid).children()
    child.kill()
    eventually(lambda: not psutil.pid_exists(child.pid))
    service.send_signal(signal.SIGTERM)
    assert 0 == service.wait(120)
    assert not (state_home() / "service-starts.json").exists()


@pytest.mark.thorough  # of starts that fail others tell; here it is one after an upgrade
def test_a_newer_version_that_does_not_start_is_a_crash(service, packages):
    """The supervisor watches this process, and sees its failure."""
    of_version("1")
    (child,) = psutil.Process(service.pid).children()
    packages.install("3")

    assert 7 == service.wait(60)
    kill_if_running(child)


def test_what_a_process_runs_does_not_change_when_another_version_is_installed(packages):
    packages.install("1.2")
    version.own_version.cache_clear()
    try:
        assert "1.2" == version.own_version()
        packages.install("1.3")
        assert "1.2" == version.own_version()
    finally:
        version.own_version.cache_clear()


LOAD_ALL = """
import sys
from smart_fork.cli.service import upgrade
upgrade.load_service()
loaded = set(sys.modules)
import smart_fork.forking.lineage, smart_fork.forking.plan, smart_fork.page.routes, smart_fork.workers.messages
print([name for name in sys.modules if name not in loaded], "smart_fork.cli.main" in sys.modules)
"""


@pytest.mark.thorough
def test_nothing_of_another_version_is_imported_into_the_one_that_runs():
    """Modules are imported at their first use, which may be after the upgrade."""
    said = subprocess.run([sys.executable, "-c", LOAD_ALL], cwd=ROOT, capture_output=True, text=True, check=False)

    assert ("[] False\n", "") == (said.stdout, said.stderr)
