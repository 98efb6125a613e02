"""An agent's login, and the names of login variables that a person's environment has. Values are never stored or
shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from indexer.lazy import dataclass
from indexer.safe_files import private_dir, replace_file, state_home
from indexer.settings import DEPTH, WORKER_ID
from indexer.transcripts.model import AgentName
from indexer.values import dict_in, json_at
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import AgentFacet
from smart_fork.system.processes import Completed

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class LoginState:
    """The login state of an agent (`None` if unknown), and the variables that are missing."""

    logged_in: bool | None
    lacks: tuple[str, ...] = ()


class Login(AgentFacet):
    """The facet that knows how one agent logs in."""

    #: The command with which a person logs in permanently.
    command: str
    #: The file in the agent's own folder that a login leaves.
    stored: ClassVar[str] = ""

    #: Variables of which any one is a login, and those that select a method or a server.
    keys: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[tuple[str, ...]] = ()
    #: The command that says whether it is logged in, and the pattern of that command in the program's help.
    status: ClassVar[tuple[str, ...]] = ()
    listed: ClassVar[str] = ""

    @property
    def folder(self) -> str:
        """The variable that names the agent's folder. A worker always has the folder of its session."""
        return self.of.home.variable

    def has_stored(self, name: str) -> bool:
        """Return True if the agent's own folder has a file with this name."""
        return bool(name) and (self.of.home.folder() / name).is_file()

    def settings(self) -> dict[str, Any]:
        """Return the agent's own settings in JSON; empty if there are none."""
        return dict_in(json_at(self.of.home.folder() / "settings.json"))

    def auth(self) -> dict[str, Any]:
        """Return the login method in the settings of Gemini CLI or of its fork Qwen Code."""
        return table(table(self.settings(), "security"), "auth")

    def variables(self) -> tuple[str, ...]:
        """Return the variables that decide how the agent logs in and which server it uses, without the folder's
        variable.
        """
        return (*self.keys, *self.beside)

    def settled(self) -> frozenset[str]:
        """Return the login variables that the agent's own settings set, whatever the environment has."""
        return frozenset()

    def required(self) -> tuple[str, ...]:
        """Return the login variables that the agent's own settings require; empty if one of several is enough."""
        return ()

    def is_plain(self, env: Mapping[str, str]) -> bool:
        """Return True if `env`, or a file of the agent, shows that the agent is logged in."""
        return any(env.get(name) for name in self.keys) or self.has_stored(self.stored)

    def answered(self, said: Completed) -> bool | None:
        """Return True if the agent's status command says that it is logged in; `None` if the output does not tell."""
        return None


def is_variable(value: object) -> bool:
    """Return True if a value can be the name of an environment variable."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def table(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object with this name in settings; empty if there is none."""
    return dict_in(settings.get(name))


_MAX_NAMES = 100


def noted_variables(agent: AgentName) -> tuple[str, ...]:
    """Return the names of login variables for an agent that a person's environment had last."""
    return tuple(_noted().get(agent, ()))


def note_variables_of_person(env: Mapping[str, str]) -> None:
    """Note the names of login variables that `env` sets for each agent, if `env` is a person's own.

    The environment of an agent, or of a worker, is not.
    """
    if not any(name in env for name in (*AGENTS.callers_own, DEPTH, WORKER_ID)):
        note_variables(env)


def note_variables(env: Mapping[str, str], agents: Iterable[str] | None = None, *, also: bool = False) -> None:
    """Note the names of login variables that `env` sets for `agents`, by default for all. With `also`, keep noted
    ones.

    Errors are ignored: the caller has another task.
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
            replace_file(
                private_dir(_names_file().parent) / _names_file().name, [json.dumps(said).encode()], durable=False
            )


def _names_file() -> Path:
    return state_home() / "variables.json"


def _noted() -> dict[str, list[str]]:
    lists = dict_in(json_at(_names_file())).items()
    return {agent: [one for one in names if is_variable(one)] for agent, names in lists if isinstance(names, list)}
