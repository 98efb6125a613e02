"""A client of the service that may send anything: raw JSON-RPC over HTTP, and plain requests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What a call may take; a wait for workers, which have all ended, takes none.
SECONDS = 60.0
VERSION = "2025-06-18"
MODERN = "2026-07-28"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: `message` is the JSON-RPC answer, where there was one, `text` the whole body."""

    status: int
    text: str
    message: dict[str, Any] | None = None


class Client:
    """One client, that says it works in `root`."""

    def __init__(self, port: int, token: Callable[[], str], root: Path) -> None:
        self._port, self._token, self._root = port, token, root
        self._session: str | None = None
        self._number = 0
        self.start()

    def start(self) -> None:
        """Begin a session."""
        self._session = None
        about = {"name": "claude-code", "version": "1"}
        capabilities: dict[str, Any] = {"roots": {}}
        hello = {"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": about}
        answer, headers = self._exchange(self._request("initialize", hello), VERSION)
        assert answer.message is not None, answer
        self._session = headers["mcp-session-id"]
        self._exchange({"jsonrpc": "2.0", "method": "notifications/initialized"}, VERSION)

    def call(self, method: str, params: Any, *, modern: bool = False) -> Answer:
        """One request; with `modern` of the protocol without sessions."""
        request = self._request(method, params)
        if modern and isinstance(params, dict):
            about = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            request["params"] = params | {"_meta": about | (params.get("_meta") or {})}
        return self._exchange(request, MODERN if modern else VERSION, method if modern else "")[0]

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """A plain request."""
        answer, content, _ = self._send(method, path, body, headers)
        return Answer(answer, content.decode("utf-8", "replace"))

    def _request(self, method: str, params: Any) -> dict[str, Any]:
        self._number += 1
        return {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}

    def _headers(self, version: str, method: str = "") -> dict[str, str]:
        headers = {
            "Authorization": f"Bearer {self._token()}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": version,
        }
        if method:
            return headers | {"Mcp-Method": method}
        return headers | ({"Mcp-Session-Id": self._session} if self._session else {})

    def _exchange(self, request: dict[str, Any], version: str, method: str = "") -> tuple[Answer, Any]:
        headers = self._headers(version, method)
        if method == "tools/call" and isinstance(request["params"].get("name"), str):
            headers["Mcp-Name"] = request["params"]["name"]
        status, content, given = self._send("POST", "/mcp", json.dumps(request).encode(), headers)
        text = content.decode("utf-8", "replace")
        found = None
        for line in text.splitlines() if "event-stream" in given.get("content-type", "") else [f"data: {text}"]:
            with suppress(ValueError):
                message = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
                if isinstance(message, dict) and ("result" in message or "error" in message):
                    found = message
        return Answer(status, text, found), given

    def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        try:
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # what is too large is refused before it has been sent
                connection.request(method, path, body, headers)
            answer = connection.getresponse()
            streams = "event-stream" in (answer.headers.get("content-type") or "")
            content = b"".join(self._lines(answer)) if streams else answer.read()
            return answer.status, content, answer.headers
        finally:
            connection.close()

    def _lines(self, answer: http.client.HTTPResponse) -> Any:
        """A stream to its end; when the service asks which roots the client has, it is told."""
        while line := answer.readline():
            if b'"roots/list"' in line:
                asked = json.loads(line.removeprefix(b"data: "))
                roots = {"roots": [{"uri": self._root.as_uri()}]}
                told = {"jsonrpc": "2.0", "id": asked["id"], "result": roots}
                self._send("POST", "/mcp", json.dumps(told).encode(), self._headers(VERSION))
                continue
            yield line
