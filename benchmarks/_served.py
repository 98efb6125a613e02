"""A real service in a home of its own, and clients that ask it over MCP."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import psutil

START_SECONDS = 60.0
CALL_SECONDS = 120.0
#: The service hangs up when nobody has asked for five seconds.
KEPT_SECONDS = 3.0
_PASSED_ON = ("PATH", "LANG", "VIRTUAL_ENV", "PYTHONPATH", "OMP_NUM_THREADS")


class Served:
    """``smart-fork serve`` with the index kept fresh. Leaving the context ends it."""

    def __init__(self, home: Path, *, indexing: bool = True) -> None:
        self.home, self.state = home, home / "state"
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "config.toml").write_text(f'[service]\nprojects = ["{home / "work"}"]\n', encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
        self.environment = kept | {
            "HOME": str(home), "SMART_FORK_HOME": str(self.state), "HF_HUB_OFFLINE": "1", "SMART_FORK_PORT": "0",
            "SMART_FORK_INDEXING": str(indexing).lower(), "SMART_FORK_INDEX_CRON": "6h",
        }  # fmt: skip

    def __enter__(self) -> Self:
        started = time.perf_counter()
        (self.state / "service.json").unlink(missing_ok=True)
        command = [sys.executable, "-m", "smart_fork", "serve"]
        self._process = subprocess.Popen(command, env=self.environment, cwd=self.home, stdin=subprocess.DEVNULL)
        self.process = psutil.Process(self._process.pid)
        while not self._answers():
            if self._process.poll() is not None or time.perf_counter() - started > START_SECONDS:
                sys.exit(f"the service did not start: see {self.state}/logs/service.log")
            time.sleep(0.02)
        self.start_seconds = time.perf_counter() - started
        self.token = (self.state / "service-token").read_text("ascii")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            if code := self._process.wait(30):
                print(f"the service ended with {code}", file=sys.stderr)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _answers(self) -> bool:
        try:
            said = json.loads((self.state / "service.json").read_bytes())
            self.port = int(said["port"])
            return self.request("GET", "/healthz", token="")[0] == 200
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def request(self, method: str, path: str, body: bytes = b"", token: str | None = None) -> tuple[int, bytes]:
        """Status and body of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_SECONDS)
        try:
            connection.request(
                method, path, body, {"Authorization": f"Bearer {self.token if token is None else token}"}
            )
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        """How indexing goes."""
        found: dict[str, Any] = json.loads(self.request("GET", "/status")[1])["indexing"]
        return found

    def client(self) -> Client:
        """Somebody who asks."""
        return Client(self.port, self.token)

    def cpu_seconds(self) -> float:
        """What the service and the processes that it has started have used, those that have ended among them."""
        times = [one.cpu_times() for one in _alive(self.process)]
        return sum(one.user + one.system + one.children_user + one.children_system for one in times)

    def megabytes(self) -> float:
        """What they have resident."""
        return sum(one.memory_info().rss for one in _alive(self.process)) / 1e6


class Client:
    """An MCP client over streamable HTTP with one connection, as agents have; for one thread."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_SECONDS)
        self._headers = {
            "Authorization": f"Bearer {token}", "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }  # fmt: skip
        self._number, self._used = 0, time.monotonic()
        information = {"name": "benchmark", "version": "1"}
        self._ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=information)
        self._post({"method": "notifications/initialized"})

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """The structured answer of a tool.

        Raises:
            RuntimeError: the service has refused, or the tool has failed.
        """
        result = self._ask("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            raise RuntimeError(str(result.get("content"))[:500])
        answer: dict[str, Any] = result["structuredContent"]
        return answer

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _ask(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        content = self._post({"id": self._number, "method": method, "params": params})
        lines = [line[5:] for line in content.splitlines() if line.startswith(b"data:") and line[5:].strip()] or [
            content
        ]
        answer = next(one for one in map(json.loads, lines) if one.get("id") == self._number)
        if "error" in answer:
            raise RuntimeError(str(answer["error"])[:500])
        result: dict[str, Any] = answer["result"]
        return result

    def _post(self, message: dict[str, Any]) -> bytes:
        body = json.dumps({"jsonrpc": "2.0"} | message).encode()
        if time.monotonic() - self._used > KEPT_SECONDS:
            self._connection.close()  # it is opened again by itself
        self._connection.request("POST", "/mcp", body, self._headers)
        answer = self._connection.getresponse()
        content, self._used = answer.read(), time.monotonic()
        if session := answer.getheader("mcp-session-id"):
            self._headers["mcp-session-id"] = session
        if answer.status >= 400:
            raise RuntimeError(f"{answer.status}: {content[:300]!r}")
        return content


def _alive(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of them do not exceed; 0 where there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def busy_machine() -> str:
    """What else goes on here: load averages."""
    return "load average " + ", ".join(f"{load:.2f}" for load in os.getloadavg())
