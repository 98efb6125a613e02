"""The login of agents, and the login variables that a person's shell has but a service was started without.

The names of these variables are saved in smart-fork's folder, never their values. The values are read from the person's
login shell when a worker (an agent) starts.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from indexer.environment import ASKS_SHELL
from indexer.json_values import dict_in, json_at, json_in
from indexer.lazy_compilation import dataclass
from indexer.safe_files import private_dir, replace_file, state_home
from smart_fork.agents.description import AgentFacet
from smart_fork.errors import SmartForkError

if TYPE_CHECKING:
    from smart_fork.system.processes import Completed, Processes

#: The time limit of a shell's profile, since the start of each worker waits for it.
SHELL_SECONDS = 10.0
#: The variables that a shell needs to find its profile. It sets all others itself.
PROFILE_VARIABLES = (
    "SHELL", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "PATH", "ZDOTDIR", "XDG_CONFIG_HOME", "TMPDIR", "TERM",
)  # fmt: skip
#: Many profiles stop early in a dumb terminal.
_TERM = "xterm-256color"
#: Runs inside the login shell: prints a mark, then the values of the named variables as JSON.
_PROGRAM = (
    "import json, os, sys; mark, *names = sys.argv[1:]; "
    "sys.stdout.write(mark + json.dumps({name: os.environ[name] for name in names if name in os.environ}))"
)
_NOTES, _MAX_NAMES = "variables.json", 100
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class LoginState:
    """The login state of an agent (`None` if unknown), and the required variables that are not set."""

    logged_in: bool | None
    lacks: tuple[str, ...] = ()


class LoginShell:
    """A person's login shell, found in the environment `env`. `path` is its absolute path; empty without a shell."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env, self.path = env, env.get("SHELL") or ""
        if not self.path:
            with suppress(KeyError):
                self.path = pwd.getpwuid(os.getuid()).pw_shell
        if not (Path(self.path).is_absolute() and os.access(self.path, os.X_OK)):
            self.path = ""

    def values(self, names: Sequence[str], processes: Processes) -> dict[str, str]:
        """Run the shell with its profile, and return the variables in `names` that it sets; empty if it fails."""
        if not names or not self.path:
            return {}
        env, mark = self._env, os.urandom(8).hex()
        words = [sys.executable, "-I", "-c", _PROGRAM, mark, *names]
        given = {name: env[name] for name in PROFILE_VARIABLES if name in env}
        given = {"TERM": _TERM} | given | {"SHELL": self.path, ASKS_SHELL: "1"}
        argv, home = [self.path, "-l", "-i", "-c", shlex.join(words)], Path(env.get("HOME") or Path.home())
        try:
            done = processes.run(argv, cwd=home, env=given, timeout=SHELL_SECONDS)
        except SmartForkError:
            return {}
        _, found, rest = done.stdout.rpartition(mark.encode())  # a profile may print what it likes before
        said = dict_in(json_in(rest)) if found else {}
        return {name: value for name, value in said.items() if name in names}


class Login(AgentFacet):
    """Knows how one agent logs in."""

    #: The login shell that belongs to an environment.
    shell: ClassVar = LoginShell
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

    def noted(self) -> tuple[str, ...]:
        """Return the saved names of the agent's login variables that a person's environment has (`note_variables`)."""
        return tuple(_noted_names().get(self.agent, ()))

    @property
    def folder(self) -> str:
        """The environment variable that names the agent's own folder, and so the folder with its sessions."""
        return self.of.home.variable

    def has_stored(self, name: str) -> bool:
        """Return True if the agent's own folder has a file with this name."""
        return bool(name) and (self.of.home.folder() / name).is_file()

    def settings(self) -> dict[str, Any]:
        """Return the agent's own settings from its file of JSON; empty without the file."""
        return dict_in(json_at(self.of.home.folder() / "settings.json"))

    def auth(self) -> dict[str, Any]:
        """Return the part of the settings that selects the login method, in Gemini CLI and Qwen Code."""
        return table(table(self.settings(), "security"), "auth")

    def variables(self) -> tuple[str, ...]:
        """Return the variables that decide how the agent logs in and to which server, without that of its folder."""
        return (*self.keys, *self.beside)

    def settled(self) -> frozenset[str]:
        """Return the names of the login variables that the agent's own settings set, whatever the environment has."""
        return frozenset()

    def required(self) -> tuple[str, ...]:
        """Return the names of the login variables that the settings require together; empty if any one is enough."""
        return ()

    def is_plain(self, env: Mapping[str, str]) -> bool:
        """Return True if `env` or a file shows that the agent is logged in, so that its status command need not run."""
        return any(env.get(name) for name in self.keys) or self.has_stored(self.stored)

    def answered(self, said: Completed) -> bool | None:
        """Return True if the agent is logged in, by the status command's output `said`; `None` if that is unclear."""
        return None


def note_variables(logins: Iterable[Login], env: Mapping[str, str], *, also: bool) -> None:
    """Save the names of the login variables that `env` sets. With `also`, names saved before stay. Ignore errors."""
    before, now = _noted_names(), dict[str, list[str]]()
    for one in logins:
        names = {name for name in (*one.variables(), one.folder) if env.get(name)}
        now[one.agent] = sorted(names.union(one.noted() if also else ()))[:_MAX_NAMES]
    noted = {agent: names for agent, names in (before | now).items() if names}
    if noted != before:
        with suppress(OSError):
            replace_file(private_dir(state_home()) / _NOTES, [json.dumps(noted).encode()], durable=False)


def _noted_names() -> dict[str, list[str]]:
    lists = dict_in(json_at(state_home() / _NOTES)).items()
    return {agent: [one for one in names if is_variable(one)] for agent, names in lists if isinstance(names, list)}


def is_variable(value: object) -> bool:
    """Return True if a value can be the name of an environment variable."""
    return isinstance(value, str) and _VARIABLE_NAME.fullmatch(value) is not None


def table(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object in the field `name` of settings; empty if there is none."""
    return dict_in(settings.get(name))
