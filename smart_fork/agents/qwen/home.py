"""Qwen Code's own folder: ``QWEN_HOME`` or ``~/.qwen``; what it writes while it runs may be in another one."""

from __future__ import annotations

import os
from pathlib import Path

from smart_fork.agents.description import Home

_RUNTIME = "QWEN_RUNTIME_DIR"
HOME = Home("QWEN_HOME", ".qwen", beside=(_RUNTIME,))
qwen_home = HOME.folder
#: The variable in which it tells its session to what it starts.
SESSION = "QWEN_CODE_SESSION_ID"
#: The folder of a project's sessions, and in that the folder of those that were put away.
CHATS, ARCHIVE = "chats", "archive"


def runtime_homes() -> tuple[Path, ...]:
    """Return the folders below which its sessions are: that of ``QWEN_RUNTIME_DIR``, else its own ones.

    One that is relative would be below wherever it is started.
    """
    named = os.environ.get(_RUNTIME, "")
    return (Path(named).expanduser(),) if named.startswith(("/", "~/")) else HOME.folders()


def runtime_home() -> Path:
    """Return the one of the session being started, else the first one."""
    return runtime_homes()[0]


def project_of(log: Path) -> Path:
    """The folder of the project of a session's log, which may have been put away."""
    chats = log.parent.parent if log.parent.name == ARCHIVE else log.parent
    return chats.parent


def agents_of(log: Path) -> Path:
    """The folder of the logs of a session's sub-agents."""
    return project_of(log) / "subagents" / log.stem
