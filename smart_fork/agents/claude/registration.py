"""Claude Code's servers of a person: ``mcpServers`` in ``.claude.json``.

Seen with 2.1.197: it reads strict JSON only (a file with comments is replaced as damaged), takes ``.config.json`` in
its folder before ``.claude.json``, locks the file by a folder beside it, and writes it again whenever it starts. So the
entry is put in as text, which can be taken out again to the byte where Claude Code has not run meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from smart_fork.agents.registration import NAME, Allowing, JsonRegistration
from smart_fork.errors import SmartForkError

#: Seconds after which Claude Code takes a lock for one that was left by a process that died.
_STALE = 10.0
_PATIENCE, _LOOK = 12.0, 0.05


class ClaudeRegistration(JsonRegistration):
    """See `Registration`."""

    client = ("claude-code", "2025-11-25")
    said: Mapping[str, str] = {"CLAUDECODE": "1"}

    def path(self) -> Path:
        legacy = self.home() / ".config.json"
        if legacy.exists():
            return legacy
        folder = self.home() if os.environ.get("CLAUDE_CONFIG_DIR") else Path.home()
        return folder / ".claude.json"

    def allowing(self, tools: Sequence[str]) -> Allowing | None:
        """See `Registration.allowing`: a tool has another name where the server came with the plugin."""
        servers = (NAME, f"plugin_{NAME}_{NAME}")
        return Allowing(
            self.home() / "settings.json", tuple(f"mcp__{one}__{tool}" for one in servers for tool in tools)
        )

    def wanted(self, words: Sequence[str], env: Mapping[str, str], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """See `Registration.wanted`. Only with ``alwaysLoad`` does the first request wait for the server."""
        return super().wanted(words, env, {"alwaysLoad": True, **(before or {})})

    def holders(self) -> tuple[Path, ...]:
        """See `Registration.holders`: also the file of the project that one is in."""
        return (Path.home() / ".claude.json", self.home() / ".claude.json", Path(".mcp.json"))

    def over_http(self, url: str, token: str) -> str:
        return f'claude mcp add --transport http {NAME} {url} --header "Authorization: Bearer $(cat {token})"'

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """See `Registration.lock`: the folder that Claude Code makes for the same."""
        path = self.path()
        lock = path.with_name(f"{path.name}.lock")
        if not path.parent.is_dir():
            yield
            return
        _take(lock, path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                lock.rmdir()


def _take(lock: Path, path: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            lock.mkdir()
        except FileExistsError:
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > _STALE:
                    lock.rmdir()
                    continue
            if time.monotonic() > until:
                raise SmartForkError(f"Claude Code is writing {path}", f"Try again, or remove {lock}.") from None
            time.sleep(_LOOK)
        except OSError as error:
            raise SmartForkError(
                f"{path} cannot be written: {error.strerror}", "Check the owner of the folder."
            ) from error
        else:
            return
