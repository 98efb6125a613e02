"""The service's Unix socket for smart-fork's own programs of the same user, with real processes."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from indexer.safe_files import state_home
from smart_fork.cli.service import client, json_log, server
from smart_fork.cli.service.client import Service, ServiceGoneError, find_service
from smart_fork.cli.service.instance import Address, publish
from smart_fork.errors import ProgramFailed
from smart_fork.system import peers
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import eventually
from tests.support import forkserver

COMMAND = [sys.executable, "-m", "smart_fork", "serve"]


@pytest.fixture
def served_at(monkeypatch) -> Iterator[Callable[..., tuple[subprocess.Popen, Service]]]:
    """Return a function that starts the real service of the current home, and waits until it answers."""
    begun = []
    monkeypatch.setattr(client, "STATUS_SECONDS", 60.0)

    def start(**how: object) -> tuple[subprocess.Popen, Service]:
        process = forkserver.Popen(COMMAND, cwd="/", stdin=subprocess.DEVNULL, **{"stderr": subprocess.DEVNULL} | how)
        begun.append(process)

        def answers() -> Service | None:
            assert process.poll() is None
            service = find_service()
            return service if service is not None and service.address.pid == process.pid else None

        return process, eventually(answers, 60)

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def asked(path: str, *lines: str) -> bytes:
    """Send a request over a socket. Return everything until the service closes the connection."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(120)
        line.connect(path)
        line.sendall("".join(f"{one}\r\n" for one in (*lines, "Connection: close", "")).encode())
        return b"".join(iter(lambda: line.recv(65536), b""))


def status(path: str, *lines: str) -> int:
    return int(asked(path, *lines).split()[1])


OURS = f"Host: {peers.SERVICE}"


def test_a_process_of_the_same_user_needs_no_token(served):
    assert 200 == status(served.socket, "GET /status HTTP/1.1", OURS)
    assert json.loads(asked(served.socket, "GET /healthz HTTP/1.1", OURS).partition(b"\r\n\r\n")[2])["indexing"] == "ok"
    assert 401 == served.answer("GET", "/status", Cookie="").status, "over TCP it does"
    assert 421 == served.answer("GET", "/status", Host=peers.SERVICE).status


def test_a_page_in_a_browser_that_reaches_the_socket_gets_nothing(served):
    """Such requests arrive if a person forwards a port to the socket."""
    for host in (f"127.0.0.1:{served.port}", "localhost:8000", "evil.example"):
        assert 421 == status(served.socket, "GET / HTTP/1.1", f"Host: {host}")
    assert 403 == status(served.socket, "GET / HTTP/1.1", OURS, "Origin: http://evil.example")
    assert 403 == status(served.socket, "GET / HTTP/1.1", OURS, f"Origin: http://{peers.SERVICE}")


def test_the_system_says_who_is_at_the_other_end():
    one, other = socket.socketpair()
    with one, other:
        assert (os.getpid(), os.geteuid()) == peers.credentials(one)
        assert peers.is_ours(other)
    assert not peers.is_ours(other)


def test_another_user_who_connects_is_sent_away(served, monkeypatch):
    served.announce()
    monkeypatch.setattr("smart_fork.system.http_limits.is_ours", lambda _: False)
    with pytest.raises((ConnectionError, IndexError)):
        status(served.socket, "GET /healthz HTTP/1.1", OURS)
    assert find_service() is None


def test_another_user_who_listens_is_told_nothing(home, monkeypatch):
    monkeypatch.setattr(client, "is_ours", lambda _: False)
    with socket.socket(socket.AF_UNIX) as theirs:
        publish(Address("127.0.0.1", 1, os.getppid(), "1", "", path := str(state_home() / "s")))
        theirs.bind(path)
        theirs.listen()

        assert find_service() is None

        line, _ = theirs.accept()
        with line:
            assert b"" == line.recv(1)


@pytest.mark.slow
def test_two_homes_have_two_services(served_at, home, monkeypatch):
    found = {}
    for name in ("one", "two"):
        monkeypatch.setenv("SMART_FORK_HOME", str(home / name))
        process, service = served_at()
        found[name] = (process.pid, service.address.socket)
    for name in ("one", "two"):
        monkeypatch.setenv("SMART_FORK_HOME", str(home / name))
        address = find_service().address
        assert found[name] == (address.pid, address.socket)
    assert 4 == len({part for pair in found.values() for part in pair})


def test_a_socket_of_a_service_that_was_killed_is_replaced(served_at):
    killed, service = served_at()
    killed.kill()
    killed.wait()
    assert Path(service.address.socket).exists()
    assert find_service() is None
    with pytest.raises(ServiceGoneError):
        service.health()
    (state_home() / "service.json").unlink()  # as if it was killed before it said where it listens

    _, after = served_at()

    assert after.address.socket == service.address.socket


@pytest.mark.thorough
def test_a_home_whose_path_is_too_long_has_its_socket_elsewhere(served_at, home, monkeypatch):
    monkeypatch.setenv("SMART_FORK_HOME", str(home / ("long" * 30)))
    killed, service = served_at()
    folder = Path(service.address.socket).parent
    assert (Path("/tmp"), 0o700) == (folder.parent, folder.stat().st_mode & 0o777)  # noqa: S108
    killed.kill()
    killed.wait()

    process, after = served_at()

    assert folder != (now := Path(after.address.socket).parent)
    assert not folder.exists(), "what the killed one has left is gone"
    process.terminate()
    assert 0 == process.wait(60)
    assert not now.exists()


def test_a_service_that_hangs_is_left_alone(served_at, monkeypatch, run):  # noqa: F811
    process, _ = served_at()
    process.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as soon:
        soon.setattr(client, "STATUS_SECONDS", 0.2)
        assert find_service() is None
        assert f"process {process.pid}: It is just starting, or it hangs" in " ".join(run("status").out.split())
        assert "does not answer there" in run("doctor", "--deep").out
    process.send_signal(signal.SIGCONT)
    assert find_service() is not None


@pytest.mark.thorough
def test_a_client_that_is_killed_in_the_middle_of_a_request_harms_nobody(served_at):
    _, service = served_at()
    code = f"""
import signal, socket
line = socket.socket(socket.AF_UNIX)
line.connect({service.address.socket!r})
line.sendall(b"POST /recall HTTP/1.1\\r\\n{OURS}\\r\\nContent-Length: 10\\r\\n\\r\\nonly")
print(flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as asking:
        asking.stdout.readline()
        asking.kill()

    assert find_service() is not None


def test_fifty_clients_are_answered_at_the_same_time(served):
    served.announce()
    with ThreadPoolExecutor(50) as clients:
        assert 50 == sum(one is not None for one in clients.map(lambda _: find_service(), range(50)))


def test_a_second_service_of_a_home_does_not_begin(served_at, run):  # noqa: F811
    _, service = served_at()

    assert f"already running: {service.address.url}" in run("serve").err
    with pytest.raises(ProgramFailed, match="already running"):
        server.serve()
    assert service.address == find_service().address


def test_where_no_socket_can_be_made_the_service_listens_over_tcp_alone(home, monkeypatch, caplog):
    monkeypatch.setenv("SMART_FORK_HOME", str(home / ("long" * 30)))
    monkeypatch.setattr(server, "mkdtemp", lambda **_: (_ for _ in ()).throw(PermissionError("read-only")))

    with closing(server.listen("127.0.0.1", None)) as opened:
        assert "" == opened.local
        socket.create_connection(("127.0.0.1", opened.port), timeout=60).close()

    assert "the service has no socket" in caplog.text


def test_in_a_home_that_cannot_be_written_there_is_no_service_and_nothing_is_made(monkeypatch, run):  # noqa: F811
    monkeypatch.setenv("SMART_FORK_HOME", "/dev/null/x")
    assert find_service() is None
    assert "No service runs" in run("service", "stop").out


def test_looking_for_a_service_leaves_no_trace(home, run):  # noqa: F811
    assert find_service() is None
    assert not state_home().exists()


@contextmanager
def full_pipe() -> Iterator[int]:
    """Return a full pipe without a reader."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    try:
        yield write
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.thorough
def test_what_nobody_reads_keeps_nobody_waiting(served_at):
    """Standard error is a full pipe."""
    with full_pipe() as pipe:
        _, service = served_at(stderr=pipe)
        for _ in range(20):
            assert 421 == status(service.address.socket, "GET / HTTP/1.1", "Host: evil.example")


def test_a_log_that_cannot_be_written_says_nothing_of_it(home, capsys):
    handler = json_log._Private(json_log.log_file())
    handler.stream.close()

    handler.handle(logging.makeLogRecord({"msg": "x"}))

    assert ("", "") == capsys.readouterr()
