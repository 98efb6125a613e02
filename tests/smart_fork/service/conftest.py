"""A service on loopback, in a thread, with the small world's sessions."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest
import uvicorn

from smart_fork.page import views
from smart_fork.page.entry import Codes
from smart_fork.page.forms import Forms
from smart_fork.page.rendering import stranger
from smart_fork.retrieval.finding import Engine
from smart_fork.server import create_server
from smart_fork.service.address import cookie_value, token
from smart_fork.service.app import PUBLIC, Work, application
from smart_fork.service.connections import Connection
from smart_fork.service.guard import COOKIE, Guard


@dataclass
class Served:
    """A service that runs."""

    port: int
    secret: str
    codes: Codes
    broken: bool = False

    def get(self, path: str, **query: object) -> tuple[int, str]:
        answer = self.answer("GET", f"{path}?{urlencode(query)}" if query else path)
        return answer.status, answer.read().decode()

    def answer(self, method: str, path: str, body: bytes = b"", **headers: str) -> http.client.HTTPResponse:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)) as connection:
            given = {"Cookie": f"{COOKIE}={cookie_value(self.secret)}"} | {
                name.replace("_", "-"): one for name, one in headers.items()
            }
            connection.request(method, path, body or None, {name: one for name, one in given.items() if one})
            answer = connection.getresponse()
            content = answer.read()
            answer.read = lambda *_: content
            return answer


@pytest.fixture
def served(world):
    """The service of that world."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    running = Served(port, token(), Codes())

    def question() -> None:
        if running.broken:
            raise RuntimeError("the disk is gone")

    forms = Forms(running.secret)
    page = views.Page(lambda: Engine(world.model), running.codes, forms, cookie_value(running.secret), COOKIE)
    work = Work(world.model, question, lambda: {"state": "idle"})
    app = application(create_server(world.model), work, page.routes(), running.secret)
    public = [*PUBLIC, *views.PUBLIC]
    guard = Guard(app, secret=running.secret, hosts=[f"127.0.0.1:{port}"], public=public, stranger=stranger)
    server = uvicorn.Server(uvicorn.Config(guard, log_config=None, ws="none", http=Connection))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield running
    server.should_exit = True
    thread.join()
