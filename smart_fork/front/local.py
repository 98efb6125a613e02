"""A server of one's own: the whole of it, in a process that has the agent's environment and directory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from smart_fork.processes import SystemProcesses
from smart_fork.rpc import RpcMessage, read

#: A server ends immediately when nobody talks to it any more.
END_SECONDS = 5.0
#: The command line itself: unlike the program it looks for no service to stand before. Nothing is imported from the
#: directory that the agent works in.
COMMAND = (sys.executable, "-P", "-m", "smart_fork.cli", "mcp", "--tools")


class Local:
    """A server that runs, and lists these `tools`.

    `heard` gets what it says, `ended` its status when it ends by itself; both from a thread.

    It sees the end of its input, and ends, when this process does, however that comes about.
    """

    def __init__(self, tools: str, heard: Callable[[RpcMessage], None], ended: Callable[[int], None]) -> None:
        self._process = SystemProcesses().converse((*COMMAND, tools), cwd=Path.cwd(), env=os.environ)
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("both are pipes")
        self._said, self._says = self._process.stdin, self._process.stdout
        self._heard, self._ended = heard, ended
        self._lock = threading.Lock()
        self._over = False
        threading.Thread(target=self._listen, name="local", daemon=True).start()

    def tell(self, message: RpcMessage) -> None:
        """Pass `message` on."""
        with self._lock, suppress(OSError):  # that it has ended is heard
            self._said.write(message.line + b"\n")
            self._said.flush()

    def end(self) -> None:
        """Have it end."""
        self._over = True
        with suppress(OSError):
            self._said.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _listen(self) -> None:
        for line in self._says:
            message = read(line)
            if message is not None:
                self._heard(message)
        status = self._process.wait()
        if not self._over:
            self._ended(status)
