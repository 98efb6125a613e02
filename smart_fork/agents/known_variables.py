"""The names of the variables that a person's environment sets for each agent, never their values.

They are noted in a person's own environment, and used where a worker starts without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from indexer.files import private_dir, replace_file, state_home
from indexer.settings import DEPTH, WORKER_ID
from indexer.transcripts.model import AgentName
from indexer.values import dict_in, json_at
from smart_fork.agents import AGENTS
from smart_fork.agents.login import is_variable

_MOST = 100


def names_for(agent: AgentName) -> tuple[str, ...]:
    """Return the names that a person's environment last had for that agent."""
    return tuple(_read().get(agent, ()))


def note_a_persons(env: Mapping[str, str]) -> None:
    """Note the names that `env` sets for each agent, if it is a person's own, not made by an agent or for a worker."""
    if not any(name in env for name in (*AGENTS.callers_own, DEPTH, WORKER_ID)):
        note(env)


def note(env: Mapping[str, str], agents: Iterable[str] | None = None, *, also: bool = False) -> None:
    """Note the names that `env` sets for `agents`, by default all. With `also`, keep those already known.

    Errors are ignored: the caller has another task.
    """
    before = _read()
    wanted = None if agents is None else set(agents)
    now = dict[str, list[str]]()
    for one in AGENTS.logins():
        if wanted is None or one.agent in wanted:
            names = {name for name in (*one.variables(), one.folder) if env.get(name)}
            now[one.agent] = sorted(names.union(before.get(one.agent, ()) if also else ()))[:_MOST]
    said = {agent: names for agent, names in (before | now).items() if names}
    if said != before:
        with suppress(OSError):
            replace_file(private_dir(_file().parent) / _file().name, [json.dumps(said).encode()], durable=False)


def _file() -> Path:
    return state_home() / "variables.json"


def _read() -> dict[str, list[str]]:
    lists = dict_in(json_at(_file())).items()
    return {agent: [one for one in names if is_variable(one)] for agent, names in lists if isinstance(names, list)}
