"""The real service on a machine, at a port that stays: started, killed and started again."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.agents import SMART_FORK, Machine
from tests.e2e.terminals import wait_until
from tests.support import forkserver


class Service:
    """``smart-fork serve`` with a machine's home and environment."""

    def __init__(self, machine: Machine, port: int) -> None:
        self._env = machine.env | {"SMART_FORK_PORT": str(port), "SMART_FORK_TOOLS": "all"}
        self._announced = machine.home / ".smart-fork" / "service.json"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._announced.unlink(missing_ok=True)  # one that was killed has left it behind
        self._process = forkserver.Popen([*SMART_FORK, "serve"], cwd="/", env=self._env, stdin=subprocess.DEVNULL)
        wait_until(self._announced.exists, "the service to listen")

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Without it, as after a crash; then it is there again."""
        self._process.kill()
        self._process.wait()
        try:
            yield
        finally:
            self.start()

    def end(self) -> None:
        """End it as the system does."""
        self._process.terminate()
        assert 0 == self._process.wait(90)
        assert not self._announced.exists()

    @property
    def url(self) -> str:
        address = json.loads(self._announced.read_text())
        return f"http://{address['host']}:{address['port']}/mcp"

    @property
    def token(self) -> str:
        return self._announced.with_name("service-token").read_text()


@contextmanager
def service_on(machine: Machine) -> Iterator[Service]:
    """The service, with the machine's environment."""
    machine.know_smart_fork()
    with socket.socket() as kept:  # it never listens: so the service may, and nobody else gets the port in between
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        service = Service(machine, kept.getsockname()[1])
        yield service
        machine.close_terminals()
        service.end()
