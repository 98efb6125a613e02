"""Our MCP server as a process on stdin and stdout, as agents run it; and killed, as nobody should."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support import forkserver


class McpProcess:
    """A server that has been greeted, unless told otherwise. Leaving the context ends it. A `new` one imports what it needs."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        client: str = "claude-code",
        greeted: bool = True,
        new: bool = False,
    ) -> None:
        self._command, self._cwd, self._env, self._client = list(command), cwd, dict(env), client
        self._greeted, self._new = greeted, new
        self.start()

    def start(self) -> None:
        """Start it, anew after `kill`."""
        pipe = subprocess.PIPE
        self._number = 0
        self.process = (subprocess.Popen if self._new else forkserver.Popen)(
            self._command, cwd=self._cwd, env=self._env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        if not self._greeted:
            return
        info = {"name": self._client, "version": "1"}
        self._ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        self._say({"method": "notifications/initialized", "params": {}})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """The structured answer of a tool."""
        result = self._ask("tools/call", name=tool, arguments=arguments)
        assert not result.get("isError"), result
        answer: dict[str, Any] = result["structuredContent"]
        return answer

    def end(self) -> int:
        """Close its input, and wait for its end; its status."""
        stdin, self.process.stdin = self.process.stdin, None
        assert stdin is not None
        stdin.close()
        return self.process.wait(60)

    def kill(self) -> None:
        """``kill -9``."""
        self.process.kill()
        self.process.communicate()

    def ask(self, method: str, **params: object) -> int:
        """Ask something without waiting; the request's number."""
        self._number += 1
        self._say({"id": self._number, "method": method, "params": params})
        return self._number

    def notify(self, method: str, **params: object) -> None:
        """Say something that is not answered."""
        self._say({"method": method, "params": params})

    def _ask(self, method: str, **params: object) -> dict[str, Any]:
        result: dict[str, Any] = self.answer_to(self.ask(method, **params))["result"]
        return result

    def answer_to(self, number: int) -> dict[str, Any]:
        """The message that answers the request of that number."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == number and "method" not in message:
                return message
        raise AssertionError(f"The server ended without an answer to request {number}")

    def _say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        self.process.stdin.flush()
