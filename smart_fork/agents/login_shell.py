"""What a person's login shell sets: it is asked for single variables, whose values go into a worker and nowhere else.

A program of ours runs inside the shell and says only what was asked for, so that nothing else leaves it.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from smart_fork.agents import shell_answer
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Processes

#: A profile that takes longer would keep whoever starts a worker waiting for each.
SECONDS = 10.0
#: Set while the shell is asked: a profile that starts something of its own can look at it.
ASKING = "SMART_FORK_ASKS_SHELL"
#: What a shell needs to find its profile. All else it is to set itself.
_GIVEN = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "PATH", "ZDOTDIR", "XDG_CONFIG_HOME", "TMPDIR", "TERM")
#: Many a profile goes no further in a terminal that can do nothing.
_TERM = "xterm-256color"


def values_of(names: Sequence[str], env: Mapping[str, str], processes: Processes) -> dict[str, str]:
    """What the login shell sets of `names`; nothing where it does not answer."""
    shell = login_shell(env)
    if not names or not shell:
        return {}
    mark = secrets.token_hex(8)
    words = [sys.executable, "-I", str(Path(shell_answer.__file__).resolve()), mark, *names]
    given = {"TERM": _TERM} | {name: env[name] for name in _GIVEN if name in env} | {"SHELL": shell, ASKING: "1"}
    home = Path(env.get("HOME") or Path.home())
    try:
        done = processes.run([shell, "-l", "-i", "-c", shlex.join(words)], cwd=home, env=given, timeout=SECONDS)
    except SmartForkError:
        return {}
    _, found, rest = done.stdout.rpartition(mark.encode())  # a profile may print what it likes before
    try:
        said = json.loads(rest) if found else {}
    except ValueError:
        return {}
    return {name: value for name, value in said.items() if name in names}


def login_shell(env: Mapping[str, str]) -> str:
    """The absolute path of a person's shell; empty where there is none."""
    shell = env.get("SHELL") or ""
    if not shell:
        try:
            shell = pwd.getpwuid(os.getuid()).pw_shell
        except KeyError:
            return ""
    return shell if Path(shell).is_absolute() and os.access(shell, os.X_OK) else ""
