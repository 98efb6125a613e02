"""The names of the login variables in a person's environment, never their values.

They are noted there, and used when a worker (an agent) starts without these variables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress

from indexer.safe_files import private_dir, replace_file, state_home
from indexer.settings import DEPTH, WORKER_ID
from indexer.transcripts.model import AgentName
from indexer.values import dict_in, json_at
from smart_fork.agents import AGENTS
from smart_fork.agents.settings import is_variable

_FILE, _MAX_NAMES = "variables.json", 100


def noted_variables(agent: AgentName) -> tuple[str, ...]:
    """Return the names of the agent's login variables that a person's environment had when last noted."""
    return tuple(_noted().get(agent, ()))


def note_variables_of_person(env: Mapping[str, str]) -> None:
    """Note the names of login variables in `env`, unless it is the environment of an agent or a worker."""
    if not any(name in env for name in (*AGENTS.callers_own, DEPTH, WORKER_ID)):
        note_variables(env)


def note_variables(env: Mapping[str, str], agents: Iterable[str] | None = None, *, also: bool = False) -> None:
    """Note the names of login variables that `env` sets for `agents`, by default all. Errors are ignored.

    With `also`, the names noted before stay.
    """
    before = _noted()
    wanted = None if agents is None else set(agents)
    now = dict[str, list[str]]()
    for one in AGENTS.logins():
        if wanted is None or one.agent in wanted:
            names = {name for name in (*one.variables(), one.folder) if env.get(name)}
            now[one.agent] = sorted(names.union(before.get(one.agent, ()) if also else ()))[:_MAX_NAMES]
    said = {agent: names for agent, names in (before | now).items() if names}
    if said != before:
        with suppress(OSError):
            replace_file(private_dir(state_home()) / _FILE, [json.dumps(said).encode()], durable=False)


def _noted() -> dict[str, list[str]]:
    lists = dict_in(json_at(state_home() / _FILE)).items()
    return {agent: [one for one in names if is_variable(one)] for agent, names in lists if isinstance(names, list)}
