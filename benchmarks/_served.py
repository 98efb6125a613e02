"""A real service in a home of its own, and clients that ask it over MCP."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import psutil
from _frame import environment_of

START_SECONDS = 60.0
CALL_SECONDS = 120.0
#: The service hangs up when nobody has asked for five seconds.
KEPT_SECONDS = 3.0
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}


class Served:
    """``smart-fork serve`` with the index kept fresh. Leaving the context ends it."""

    def __init__(self, home: Path) -> None:
        self.home, self.state = home, home / "state"
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "config.toml").write_text(f'[service]\nprojects = ["{home / "work"}"]\n', encoding="utf-8")
        self.environment = environment_of(home, self.state) | {
            "HF_HUB_OFFLINE": "1", "SMART_FORK_PORT": "0", "SMART_FORK_INDEX_CRON": "6h",
            "SMART_FORK_INDEXING": "true",
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
        """Return the state of indexing."""
        found: dict[str, Any] = json.loads(self.request("GET", "/status")[1])["indexing"]
        return found

    def client(self) -> Client:
        """Return a new client."""
        return Client(self.port, self.token)

    def cpu_seconds(self) -> float:
        """Return the processor time of the service and of all processes that it has started."""
        times = [one.cpu_times() for one in _alive(self.process)]
        return sum(one.user + one.system + one.children_user + one.children_system for one in times)

    def megabytes(self) -> float:
        """Return the resident memory of the service and its processes."""
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
        self._ask("initialize", **INITIALIZE)
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


class StdioClient:
    """A minimal MCP client over a process's stdin and stdout."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self._number = 0

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request; notifications in between are skipped."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == self._number:
                result: dict[str, Any] = message["result"]
                return result
        sys.exit(f"no answer to {method}")

    def start(self) -> None:
        """Do the handshake."""
        self.request("initialize", **INITIALIZE)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def resident(self) -> float:
        """Return the resident memory of the process in MB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def close(self) -> None:
        """Close its stdin and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
