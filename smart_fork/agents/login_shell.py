"""Environment variables from the user's login shell, for a service or desktop program that was started without them."""

from __future__ import annotations

import os
import pwd
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from indexer.settings import ASKS_SHELL
from indexer.values import dict_in, json_in
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Processes

#: The time limit of a profile, since the start of each worker waits for it.
SECONDS = 10.0
#: The variables that a shell needs to find its profile. It sets all others itself.
_GIVEN = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "PATH", "ZDOTDIR", "XDG_CONFIG_HOME", "TMPDIR", "TERM")
#: Many profiles stop early in a dumb terminal.
_TERM = "xterm-256color"
#: Runs inside the login shell: prints a mark, then the values of the named variables as JSON.
_PROGRAM = (
    "import json, os, sys; mark, *names = sys.argv[1:]; "
    "sys.stdout.write(mark + json.dumps({name: os.environ[name] for name in names if name in os.environ}))"
)


def login_shell_values(names: Sequence[str], env: Mapping[str, str], processes: Processes) -> dict[str, str]:
    """Run the user's login shell, and return its values of the variables `names`. Empty if it does not answer."""
    shell = login_shell(env)
    if not names or not shell:
        return {}
    mark = secrets.token_hex(8)
    words = [sys.executable, "-I", "-c", _PROGRAM, mark, *names]
    given = {"TERM": _TERM} | {name: env[name] for name in _GIVEN if name in env} | {"SHELL": shell, ASKS_SHELL: "1"}
    home = Path(env.get("HOME") or Path.home())
    try:
        done = processes.run([shell, "-l", "-i", "-c", shlex.join(words)], cwd=home, env=given, timeout=SECONDS)
    except SmartForkError:
        return {}
    _, found, rest = done.stdout.rpartition(mark.encode())  # a profile may print what it likes before
    said = dict_in(json_in(rest)) if found else {}
    return {name: value for name, value in said.items() if name in names}


def login_shell(env: Mapping[str, str]) -> str:
    """Return the absolute path of the user's login shell; empty if there is none."""
    shell = env.get("SHELL") or ""
    if not shell:
        try:
            shell = pwd.getpwuid(os.getuid()).pw_shell
        except KeyError:
            return ""
    return shell if Path(shell).is_absolute() and os.access(shell, os.X_OK) else ""


def login_path(env: Mapping[str, str]) -> str:
    """Return the PATH of the user's login shell; empty if it does not answer, or if a shell started this program."""
    if "SHLVL" in env:
        return ""
    return _path(tuple(sorted((name, env[name]) for name in {"SHELL", *_GIVEN} & env.keys())))


@lru_cache(maxsize=4)  # a profile may take a second
def _path(env: tuple[tuple[str, str], ...]) -> str:
    return login_shell_values(["PATH"], dict(env), Processes()).get("PATH", "")
