"""A service on loopback in a thread, with the sessions of the small test world."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest
import uvicorn
from starlette.routing import Route

from indexer.safe_files import private_dir, state_home
from smart_fork.cli.service import client
from smart_fork.cli.service.app import Entrance, application
from smart_fork.cli.service.instance import Address, publish, remove_socket
from smart_fork.cli.service.request_guard import Doors
from smart_fork.cli.service.server import listen_locally
from smart_fork.finding.index_refresh import Engine
from smart_fork.page import routes
from smart_fork.page.endpoint_builder import ServiceState
from smart_fork.server import calls
from smart_fork.system.http_limits import Connection
from smart_fork.system.version import own_version
from tests.smart_fork.searches import opened
from tests.smart_fork.tool_server import create_server


class PromptServer(uvicorn.Server):
    """A server that ends immediately. Uvicorn's own looks ten times a second, and waits as long for closed
    connections.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._told, self._loop = asyncio.Event(), asyncio.get_running_loop()
        if not await self.on_tick(0):
            await self._told.wait()

    def end(self) -> None:
        """Make the server end, from another thread."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._told.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for one in [*self.servers, *(sockets or ())]:
            one.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(3):  # what was closed is told of in the next rounds
            await asyncio.sleep(0)
        await self._wait_tasks_to_complete()
        await self.lifespan.shutdown()


@dataclass
class Served:
    """A running service. Requests carry its token, unless a test says otherwise."""

    port: int
    entrance: Entrance
    socket: str
    doors: Doors | None = None
    pages: Sequence[Route] = ()
    state: ServiceState = ("ready", None)
    broken: bool = False
    asked: list[str] = field(default_factory=list)

    @property
    def secret(self) -> str:
        return self.entrance.token()

    def announce(self) -> Address:
        """Write the service's address, so that our programs find it. Its process is never the asking one."""
        started = "2026-01-01T00:00:00+00:00"
        address = Address("127.0.0.1", self.port, os.getppid(), own_version(), started, self.socket)
        publish(address)
        return address

    def cookie(self) -> str:
        """Return the cookie of a browser that has signed in."""
        return f"{self.entrance.visits.name}={self.entrance.visits.begin()}"

    def form(self, address: str) -> str:
        """Return the name of a form that a page has shown, for a request to that address."""
        return self.entrance.forms.new(address)

    def get(self, path: str, **query: object) -> tuple[int, str]:
        answer = self.answer("GET", f"{path}?{urlencode(query)}" if query else path)
        return answer.status, answer.read().decode()

    def answer(self, method: str, path: str, body: bytes = b"", **headers: str) -> http.client.HTTPResponse:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)) as connection:
            given = {} if "Cookie" in headers else {"Authorization": f"Bearer {self.secret}"}
            given |= {name.replace("_", "-"): one for name, one in headers.items()}
            connection.request(method, path, body or None, {name: one for name, one in given.items() if one})
            answer = connection.getresponse()
            content = answer.read()
            answer.read = lambda *_: content
            return answer


@pytest.fixture
def served(world, monkeypatch):
    """Run the service of the test world. It and its clients wait for each other, however busy the machine is."""
    monkeypatch.setattr(calls, "ROOTS_SECONDS", 120.0)
    monkeypatch.setattr(client, "STATUS_SECONDS", 120.0)
    listening = socket.create_server(("127.0.0.1", 0))
    own = listen_locally(private_dir(state_home()))
    port = listening.getsockname()[1]
    running = Served(port, Entrance(state_home() / "page", f"127.0.0.1:{port}"), own.getsockname())

    def question() -> None:
        running.asked.append("is it well?")
        if running.broken:
            raise RuntimeError("the disk is gone")

    entrance = running.entrance
    page = routes.Page(
        lambda *how, **where: opened(Engine(world.model), *how, **where),
        entrance,
        lambda: running.state,
    )
    app, doors = application(create_server(world.model, everything=True), page, question, lambda: {"state": "idle"})
    running.doors, running.pages = doors, page.routes()
    guard = entrance.guard(app, [f"127.0.0.1:{port}"], doors)
    server = PromptServer(uvicorn.Config(guard, log_config=None, ws="none", http=Connection))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening, own]})
    thread.start()
    yield running
    server.end()
    thread.join()
    remove_socket(Path(running.socket))
