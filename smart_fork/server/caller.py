"""Who calls the MCP server, and from which project: by the client's name, its environment and each request's own data.

All of it is text from another program: a session id is used only to compare, a path only if it is a directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent, ClientCall
from smart_fork.caller import caller_session


class Around(NamedTuple):
    """Where the process is that a caller has started: its environment and directory."""

    environment: Mapping[str, str]
    directory: Path


@dataclass(frozen=True, slots=True)
class Caller:
    """`agent` is the program that calls, `session_id` its session, `project` its directory; `None` where unknown."""

    agent: AgentName | None
    session_id: str | None
    project: str | None


def identify(
    client: str | None,
    meta: Mapping[str, Any],
    roots: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    *,
    arguments: Mapping[str, Any] | None = None,
) -> Caller:
    """The caller of one request. `roots` are the client's root URIs, `directory` the server's own working directory."""
    agent = agent_of(client)
    project = _project(agent, meta, roots, environment, directory)
    if agent is None:
        return Caller(None, caller_session(environment), project)
    call = ClientCall(meta, arguments or {}, environment, project)
    named = agent.caller.session_id(call) if agent.caller else None
    return Caller(agent.name, named or caller_session(environment, [agent]), project)


def agent_of(client: str | None) -> Agent | None:
    """The agent that a client is, by its name. Some put a server's name behind their own: what stands first counts."""
    name = (client or "").lower()
    signs = [(at, agent) for agent in AGENTS for sign in agent.clients if (at := name.find(sign)) >= 0]
    return min(signs, key=lambda sign: sign[0])[1] if signs else None


def workspaces(meta: Mapping[str, Any]) -> list[str]:
    """The directories that the data of a request say that an agent works in."""
    return [path for agent in AGENTS if agent.caller for path in agent.caller.workspaces(meta)]


def _project(
    agent: Agent | None,
    meta: Mapping[str, Any],
    roots: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
) -> str | None:
    candidates = [
        *workspaces(meta),
        *(path_of(root) for root in roots),
        *(environment.get(name) for name in _project_variables(agent)),
        # Daemons are started in "/", below which are the sessions of all projects: that says nothing.
        str(directory) if directory != Path(directory.anchor) else None,
    ]
    return next((path for path in candidates if isinstance(path, str) and _is_directory(path)), None)


def _project_variables(agent: Agent | None) -> tuple[str, ...]:
    """Those of one agent, which may have inherited others from an agent around it; of all, if it is not known."""
    return tuple(name for one in (AGENTS if agent is None else [agent]) for name in one.project_variables)


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
