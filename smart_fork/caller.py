"""Who calls the MCP server, and from which project: by the client's name, its environment and each request's own data.

All of it is text from another program: a session id is used only to compare, a path only if it is a directory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from indexer.paths import claude_home
from indexer.transcripts.model import Agent

#: What the clients' names contain; seen: claude-code, codex-mcp-client.
_CLIENTS: Mapping[str, Agent] = {"claude": "claude", "codex": "codex"}
#: What is asked of the caller's environment.
VARIABLES = ("CLAUDE_PROJECT_DIR", "CLAUDE_CODE_SESSION_ID")
#: Where a request over HTTP has, in its scope, what a program of ours has said of the caller.
AROUND = "smart_fork.around"
#: A shorter id of a tool call says too little to recognise a log by.
MIN_CALL_ID = 8
#: How far back in a log the call that is just being made can stand.
TAIL_BYTES = 512 * 1024
#: So often, and so far apart, it is looked for where nothing else names the session: seen in the log after 53-88 ms.
LOOKS, LOOK_SECONDS = 6, 0.06
#: Logs of the project looked into for it, newest first.
LOGS_LOOKED_INTO = 8


_calling: ContextVar[Agent | None] = ContextVar("calling", default=None)


class Around(NamedTuple):
    """Where the process is that a caller has started: its environment, of which `VARIABLES` count, and directory."""

    environment: Mapping[str, str]
    directory: Path


@dataclass(frozen=True, slots=True)
class Caller:
    """`agent` is the program that calls, `session_id` its session, `project` its directory; `None` where unknown."""

    agent: Agent | None
    session_id: str | None
    project: str | None


def speak_for(agent: Agent | None) -> None:
    """From here on in this context, that agent asks; `None` for a person, or nobody knows whom."""
    _calling.set(agent)


def calling_agent() -> Agent | None:
    """The agent that asks, where it is known."""
    return _calling.get()


def identify(
    client: str | None, meta: Mapping[str, Any], roots: Sequence[str], environment: Mapping[str, str], directory: Path
) -> Caller:
    """The caller of one request. `roots` are the client's root URIs, `directory` the server's own working directory."""
    agent = next((agent for name, agent in _CLIENTS.items() if name in (client or "").lower()), None)
    project = _project(meta, roots, environment, directory)
    if agent == "claude":
        tool_use = meta.get("claudecode/toolUseId")
        # The environment names the session that the process began with; after /clear or /resume only the call is right.
        began_with = environment.get("CLAUDE_CODE_SESSION_ID")
        looks = 1 if began_with else LOOKS
        session = _session_with(tool_use, project, looks) if isinstance(tool_use, str) else None
        return Caller(agent, session or began_with, project)
    if agent == "codex":
        thread = meta.get("threadId") or meta.get("sessionId")
        return Caller(agent, thread if isinstance(thread, str) else None, project)
    return Caller(None, environment.get("CLAUDE_CODE_SESSION_ID"), project)


def _project(
    meta: Mapping[str, Any], roots: Sequence[str], environment: Mapping[str, str], directory: Path
) -> str | None:
    candidates = [
        *workspaces(meta),
        *(path_of(root) for root in roots),
        environment.get("CLAUDE_PROJECT_DIR"),
        # Daemons are started in "/", below which are the sessions of all projects: that says nothing.
        str(directory) if directory != Path(directory.anchor) else None,
    ]
    return next((path for path in candidates if isinstance(path, str) and _is_directory(path)), None)


def workspaces(meta: Mapping[str, Any]) -> list[str]:
    """The directories that Codex says with each call that it works in."""
    turn = meta.get("x-codex-turn-metadata")
    named = turn.get("workspaces") if isinstance(turn, Mapping) else None
    return [path for path in named if isinstance(path, str)] if isinstance(named, Mapping) else []


def _is_directory(path: str) -> bool:
    try:
        return Path(path).is_absolute() and Path(path).is_dir()
    except (OSError, ValueError):  # a name too long, a NUL
        return False


def path_of(uri: str) -> str | None:
    """The path of the URI of a file on this machine; `None` for any other."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    ours = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return unquote(parts.path) if ours else None


def _session_with(tool_use: str, project: str | None, looks: int) -> str | None:
    """The Claude session whose log's end has this tool call; Claude Code writes it a moment after it has asked."""
    if len(tool_use) < MIN_CALL_ID or project is None:
        return None
    from smart_fork.agents.claude.slugs import slug

    folder = claude_home() / "projects" / slug(project)
    for number in range(looks):
        if number:
            time.sleep(LOOK_SECONDS)
        if found := _newest_with(folder, tool_use.encode("utf-8", "replace")):
            return found
    return None


def _newest_with(folder: Path, needle: bytes) -> str | None:
    try:
        logs = [path for path in folder.iterdir() if path.suffix == ".jsonl" and path.is_file()]
        newest = sorted(logs, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    except OSError:
        return None
    return next((path.stem for path in newest[:LOGS_LOOKED_INTO] if needle in _tail(path)), None)


def _tail(path: Path) -> bytes:
    from indexer.transcripts.lines import open_regular

    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read(TAIL_BYTES)
    except OSError:
        return b""
