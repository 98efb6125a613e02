"""Somebody else listens where our service was: he never sees the token."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from smart_fork.release import own_version
from smart_fork.service.address import Address, publish
from smart_fork.service.client import ServiceGoneError, find_service
from smart_fork.service.token import token
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures

#: What a request is answered with: of its path, its content.
Answer = Callable[[str], bytes]


@contextmanager
def stranger(answer: Answer, port: int = 0) -> Iterator[tuple[int, list[str]]]:
    """A server of somebody else: its port, and everything that it is told."""
    told: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            told.append(f"{self.requestline}\n{self.headers}\n{body!r}")
            content = answer(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - as the library calls it

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, told
        server.shutdown()
        thread.join()


def says(**facts: object) -> Answer:
    return lambda _: json.dumps({"name": "smart-fork", "version": own_version(), "model": "words"} | facts).encode()


def announce(port: int) -> Address:
    address = Address("127.0.0.1", port, os.getppid(), own_version(), "2026-01-01T00:00:00+00:00")
    publish(address)
    return address


@pytest.mark.parametrize(
    "answer",
    [says(), says(proof=""), says(proof="0" * 64), says(proof=None), says(proof="ä"), lambda _: b"<html>", lambda _: b"[]",
     lambda _: b'{"proof":' + b"[" * 100_000],
    ids=["no proof", "empty", "wrong", "null", "no ASCII", "a page", "a list", "endless"],
)  # fmt: skip
def test_a_stale_address_with_a_stranger_behind_it(run, home, answer):  # noqa: F811
    """R-072: every command that asks the service."""
    secret = token()
    with stranger(answer) as (port, told):
        announce(port)

        assert find_service() is None
        assert "not running" in run("status").out
        assert 3 == run("open", "--print").code
        run("find", "anything")
        run("service", "status")

    assert told
    assert {"/hello"} == {one.split()[1].partition("?")[0] for one in told}
    assert secret not in "".join(told)


@pytest.fixture
def relayed(served):
    """A stranger who has the real service answer our question, and what he is told."""

    def ask(path: str) -> bytes:
        with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)) as connection:
            connection.request("GET", path)
            return connection.getresponse().read()

    with stranger(ask) as (port, told):
        yield port, told


def test_a_stranger_who_has_ours_answer_for_him(served, relayed):
    port, told = relayed
    announce(port)

    assert find_service() is None
    assert told
    assert served.secret not in "".join(told)


def test_a_stranger_who_comes_after_the_service_was_found(served, relayed):
    """Whoever has found it once asks again before each request."""
    announce(served.port)
    service = find_service()
    service.status()
    port, told = relayed
    service.address = announce(port)

    with pytest.raises(ServiceGoneError):
        service.status()

    assert {"/hello"} == {one.split()[1].partition("?")[0] for one in told}
    assert served.secret not in "".join(told)


def test_a_service_that_was_replaced_by_another_version_is_not_asked(served, monkeypatch):
    """Its answers may be of another kind."""
    announce(served.port)
    service = find_service()
    monkeypatch.setattr("smart_fork.service.app.own_version", lambda: "0.0.1")

    with pytest.raises(ServiceGoneError, match="another version"):
        service.status()
    assert "0.0.1" == find_service(any_version=True).version
