"""The agents at a glance: which are installed, in which versions, what they have written, and what each can do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from indexer.store.base import Understood
from indexer.transcripts.model import AgentName
from indexer.values import Value, record, value
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent
from smart_fork.agents.programs import look_at
from smart_fork.agents.readers import READERS
from smart_fork.agents.verbs import abilities_of
from smart_fork.errors import SmartForkError
from smart_fork.finding.index_access import known_index
from smart_fork.system.processes import Processes

#: How long a program may take to say its version.
_SECONDS = 30.0
_VERSION = re.compile(r"\d+(?:\.\d+)+(?:[-+][\w.+-]{1,40})?")


@record
class AgentAtAGlance(Value):
    """One agent. `version` is empty where it does not say it, `seen` is the one that its part here was tried with.

    `sessions` counts its logs, `can` says by name what can be done with it, and `why_not` why something cannot.
    `problem` is why it cannot fork, and `unread` why none of its sessions can be read. `records` counts those in its
    indexed logs, `unknown_records` those among them of a type that smart-fork does not know.
    """

    name: AgentName
    title: str
    installed: bool
    path: str
    version: str
    seen: str
    sessions: int
    can: Mapping[str, bool]
    why_not: Mapping[str, str]
    problem: str = ""
    hint: str = ""
    unread: str = ""
    records: int = 0
    unknown_records: int = 0

    @property
    def against_seen(self) -> str:
        """How its version stands to the one that was seen, in a word; empty where they are of one minor version."""
        return compared(self.version, self.seen)


@value
class AgentsAtAGlance(Value):
    """The answer of ``agents``."""

    agents: tuple[AgentAtAGlance, ...]


def compared(version: str, seen: str) -> str:
    """Return "newer" or "older" than the version that was seen; empty if both are of one minor version or not known."""
    own, tried = _numbers(version), _numbers(seen)
    if not own or not tried or own[:2] == tried[:2]:
        return ""
    return "newer" if own > tried else "older"


def understood() -> Mapping[AgentName, Understood]:
    """Return how much of each agent's logs was understood, as far as they are in the index."""
    with known_index() as store:
        return store.understood() if store else {}
    return {}


def roster(processes: Processes | None = None, env: Mapping[str, str] | None = None) -> AgentsAtAGlance:
    """All agents. Programs are asked for their versions at the same time."""
    known = processes or Processes()
    agents, logs = list(AGENTS), understood()
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="agents") as pool:
        return AgentsAtAGlance(tuple(pool.map(lambda agent: _glance(agent, known, env, logs), agents)))


def version_of(path: str, processes: Processes, env: Mapping[str, str] | None = None) -> str:
    """What a program says that it is; empty where it says nothing like that."""
    try:
        done = processes.run([path, "--version"], cwd=Path(os.sep), env=env, timeout=_SECONDS)
    except SmartForkError:
        return ""
    said = _VERSION.search((done.stdout or done.stderr).decode("utf-8", "replace"))
    return said[0] if done.ok and said else ""


def _glance(
    agent: Agent, processes: Processes, env: Mapping[str, str] | None, logs: Mapping[AgentName, Understood]
) -> AgentAtAGlance:
    program = look_at(agent.name, processes, env) if agent.command else None
    path = program.path if program else ""
    return AgentAtAGlance(
        name=agent.name,
        title=agent.title,
        installed=bool(path),
        path=path,
        version=version_of(path, processes, env) if path else "",
        seen=agent.seen,
        sessions=_sessions(agent.name),
        can=abilities_of(agent),
        why_not=dict(agent.lacks),
        problem=program.problem if program else "",
        hint=program.hint if program else "",
        unread=READERS[agent.name].unread(),
        records=logs[agent.name].records if agent.name in logs else 0,
        unknown_records=logs[agent.name].unknown if agent.name in logs else 0,
    )


def _sessions(agent: AgentName) -> int:
    try:
        return sum(1 for _ in READERS[agent].discover())
    except OSError:
        return 0


def _numbers(version: str) -> tuple[int, ...]:
    plain = version.split("-", maxsplit=1)[0].split("+", maxsplit=1)[0]
    return tuple(int(part) for part in plain.split(".")) if _VERSION.fullmatch(plain) else ()
