"""Claude Code's servers of a person: ``mcpServers`` in ``.claude.json``.

Seen with 2.1.197: it reads strict JSON only (a file with comments is replaced as damaged), takes ``.config.json`` in
its folder before ``.claude.json``, locks the file by a folder beside it, and writes it again whenever it starts. So the
entry is put in as text, which can be taken out again to the byte where Claude Code has not run meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from indexer.paths import claude_home
from indexer.transcripts.model import Agent
from smart_fork import json_text
from smart_fork.agents.registration.base import ARGUMENTS, NAME, Allowing, UnsuitableError
from smart_fork.agents.titles import title_of
from smart_fork.errors import SmartForkError

_SERVERS = "mcpServers"
#: Seconds after which Claude Code takes a lock for one that was left by a process that died.
_STALE = 10.0
_PATIENCE, _LOOK = 12.0, 0.05
#: What a session tells its own servers of itself: a server that a person starts has none of it.
_OF_A_SESSION = ("CLAUDE_CODE_SESSION_ID", "CLAUDE_PROJECT_DIR", "SMART_FORK_WORKER_ID")


class ClaudeRegistration:
    """See `Registration`."""

    agent: Agent = "claude"
    title = title_of(agent)
    client = ("claude-code", "2025-11-25")

    def path(self) -> Path:
        """See `Registration.path`."""
        legacy = claude_home() / ".config.json"
        if legacy.exists():
            return legacy
        folder = claude_home() if os.environ.get("CLAUDE_CONFIG_DIR") else Path.home()
        return folder / ".claude.json"

    def home(self) -> Path:
        """See `Registration.home`."""
        return claude_home()

    def skills(self) -> Path:
        """See `Registration.skills`."""
        return claude_home() / "skills"

    def allowing(self, tools: Sequence[str]) -> Allowing | None:
        """See `Registration.allowing`: a tool has another name where the server came with the plugin."""
        servers = (NAME, f"plugin_{NAME}_{NAME}")
        return Allowing(
            self.home() / "settings.json", tuple(f"mcp__{one}__{tool}" for one in servers for tool in tools)
        )

    def value(self, text: str | None) -> dict[str, Any] | None:
        """See `Registration.value`."""
        if text is None:
            return None
        servers = _understood(text).get(_SERVERS, {})
        if not isinstance(servers, dict):
            raise UnsuitableError(f'"{_SERVERS}" in it is not an object')
        found = servers.get(NAME)
        if found is not None and not isinstance(found, dict):
            raise UnsuitableError(f'"{NAME}" in it is not an object')
        return found

    def raw(self, text: str | None) -> str | None:
        """See `Registration.raw`."""
        if text is None or self.value(text) is None:
            return None
        _, entry = _entry(text)
        return text[entry.value : entry.end] if entry else None

    def put(self, text: str | None, entry: Mapping[str, Any]) -> str:
        """See `Registration.put`."""
        if text is None:
            return json.dumps({_SERVERS: {NAME: entry}}, indent=2) + "\n"
        self.value(text)
        servers, there = _entry(text)
        if servers is None:
            return json_text.append(text, json_text.root(text), {NAME: entry}, _SERVERS)
        if there is None:
            return json_text.append(text, servers.value, entry, NAME)
        return json_text.replace(text, there, entry)

    def has_servers(self, text: str | None) -> bool:
        """See `Registration.has_servers`."""
        return text is not None and _SERVERS in _understood(text)

    def restore(self, text: str, raw: str | None, *, had_servers: bool = True) -> str:
        """See `Registration.restore`."""
        self.value(text)
        servers, there = _entry(text)
        if servers is None or there is None:
            return text
        if raw is not None:
            return text[: there.value] + raw + text[there.end :]
        without = json_text.remove(text, servers.value, there)
        servers, _ = _entry(without)
        if servers is None or had_servers or json_text.items(without, servers.value):
            return without
        return json_text.remove(without, json_text.root(without), servers)

    def wanted(self, program: str, env: Mapping[str, str], before: Mapping[str, Any] | None) -> dict[str, Any]:  # noqa: ARG002
        """See `Registration.wanted`. Only with ``alwaysLoad`` does the first request wait for the server."""
        ours = {"command": program, "args": list(ARGUMENTS)}
        return {**ours, "alwaysLoad": True, **(before or {}), **ours}

    def environment(self, env: Mapping[str, str], entry: Mapping[str, Any]) -> dict[str, str]:
        """See `Registration.environment`: all that it has itself."""
        own = entry.get("env")
        said = {str(name): str(value) for name, value in own.items()} if isinstance(own, dict) else {}
        return {name: value for name, value in env.items() if name not in _OF_A_SESSION} | {"CLAUDECODE": "1"} | said

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
                raise SmartForkError(f"Claude Code is writing {path}", f"Try again; or remove {lock}.") from None
            time.sleep(_LOOK)
        except OSError as error:
            raise SmartForkError(f"{path} cannot be written: {error.strerror}", "See whose folder it is.") from error
        else:
            return


def _understood(text: str) -> dict[str, Any]:
    try:
        return json_text.read_object(text)
    except (ValueError, RecursionError) as error:
        raise UnsuitableError(f"it is not plain JSON: {error}") from error


def _entry(text: str) -> tuple[json_text.Item | None, json_text.Item | None]:
    """Where the servers are, and among them ours."""
    servers = json_text.member(text, json_text.root(text), _SERVERS)
    return servers, json_text.member(text, servers.value, NAME) if servers else None
