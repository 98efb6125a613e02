"""The names of the variables that a person's environment sets for each agent, never their values.

They are noted in a person's own environment, and used where a worker starts without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from indexer.files import replace_file
from indexer.paths import private_dir, state_home
from indexer.settings import DEPTH, WORKER_ID
from indexer.transcripts.model import AgentName
from indexer.unchecked import dict_in, json_at
from smart_fork.agents.facets import logins
from smart_fork.agents.login import Login
from smart_fork.agents.plan import CALLERS_OWN

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_MOST = 100


def known_variables(agent: AgentName) -> tuple[str, ...]:
    """Return the names that a person's environment last had for that agent."""
    return tuple(_read().get(agent, ()))


def is_a_persons(env: Mapping[str, str]) -> bool:
    """Return whether an environment is a person's own, not one made by an agent or for a worker."""
    return not any(name in env for name in (*CALLERS_OWN, DEPTH, WORKER_ID))


def note_a_persons(env: Mapping[str, str]) -> None:
    """Note the names that `env` sets for each agent, if it is a person's own."""
    if is_a_persons(env):
        note(env)


def note(env: Mapping[str, str], agents: Iterable[str] | None = None, *, also: bool = False) -> None:
    """Note the names that `env` sets for `agents`, by default all. With `also`, keep those already known.

    Errors are ignored: the caller has another task.
    """
    before = _read()
    wanted = None if agents is None else set(agents)
    now: dict[str, list[str]] = {
        one.agent: sorted({*_set_in(env, one), *(before.get(one.agent, ()) if also else ())})[:_MOST]
        for one in logins()
        if wanted is None or one.agent in wanted
    }
    said = {agent: names for agent, names in (before | now).items() if names}
    if said != before:
        with suppress(OSError):
            replace_file(private_dir(_file().parent) / _file().name, [json.dumps(said).encode()], durable=False)


def _set_in(env: Mapping[str, str], login: Login) -> list[str]:
    return [name for name in (*login.variables(), login.folder) if env.get(name)]


def _file() -> Path:
    return state_home() / "variables.json"


def _read() -> dict[str, list[str]]:
    lists = dict_in(json_at(_file())).items()
    return {agent: [one for one in names if _is_name(one)] for agent, names in lists if isinstance(names, list)}


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
