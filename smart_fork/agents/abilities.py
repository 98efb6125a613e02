"""Whether each agent's program can fork. The answer is kept in the index for each version of the program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import apsw

from indexer.store.base import Store
from indexer.transcripts.model import AgentName
from smart_fork.agents.programs import find_program, look_at
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Processes, SystemProcesses


def problems_of(
    agents: Iterable[AgentName], store: Store, environment: Mapping[str, str], processes: Processes | None = None
) -> dict[AgentName, str]:
    """Return the reason why each of `agents` cannot fork; empty if it can."""
    return {agent: _problem(agent, store, environment, processes or SystemProcesses()) for agent in agents}


def _problem(agent: AgentName, store: Store, environment: Mapping[str, str], processes: Processes) -> str:
    try:
        path = find_program(agent, environment)
        version = json.dumps([path, Path(path).stat().st_mtime_ns])
    except SmartForkError as error:
        return error.message
    except OSError as error:
        return str(error)
    key = f"program that can fork: {agent}"
    if store.meta(key) == version:
        return ""
    program = look_at(agent, processes, environment)
    if not program.can_fork:
        return program.problem
    with suppress(apsw.Error):  # somebody else is writing, or nobody can: it is asked again next time
        store.set_meta(key, version)
    return ""
