"""Git, run so that nothing of a repository's own is run by it: no hooks, no program that watches files, no prompts.

Filters of the repository (such as large files kept elsewhere) do run, as they do for anybody who works in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from smart_fork.errors import ProgramFailed
from smart_fork.processes import Completed, Processes

GIT_SECONDS = 120.0
#: Set by git for its hooks: it would take them for the repository that is meant.
_GITS_OWN = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
)
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.splitIndex=false",
    "core.safecrlf=false",
    "core.quotePath=false",
    "advice.addEmbeddedRepo=false",
)
_COMMAND = ("git", *(word for setting in _SETTINGS for word in ("-c", setting)))


def git(
    folder: Path, processes: Processes, *arguments: str, env: Mapping[str, str] | None = None, given: bytes = b""
) -> Completed:
    """Run git in `folder`, with `env` on top of the environment and `given` on its standard input.

    Raises:
        ProgramMissing: git is not installed.
        ProgramFailed: it did not answer in time.
    """
    clean = {key: value for key, value in os.environ.items() if key not in _GITS_OWN}
    clean |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"} | dict(env or {})
    return processes.run([*_COMMAND, "-C", str(folder), *arguments], env=clean, timeout=GIT_SECONDS, input=given)


def asked(
    folder: Path, processes: Processes, *arguments: str, env: Mapping[str, str] | None = None, given: bytes = b""
) -> Completed:
    """The same, where git has to succeed.

    Raises:
        ProgramFailed: it did not.
    """
    done = git(folder, processes, *arguments, env=env, given=given)
    if not done.ok:
        raise ProgramFailed(f"git {arguments[0]} failed: {done.complaint}", f"Look at the repository: {folder}")
    return done


def paths(done: Completed) -> list[str]:
    """What git listed with ``-z``."""
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
