"""Processes that may end while a test looks at them: an ended process is an answer, not an error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil


def is_running(process: psutil.Process) -> bool:
    """Return False for an ended process, also if its parent has not read its status yet."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_line(process: psutil.Process) -> list[str]:
    """Return its arguments; an empty list if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def working_directory(process: psutil.Process) -> Path | None:
    """Return its directory; None if it has ended."""
    try:
        return Path(process.cwd())
    except psutil.Error:
        return None


def kill_if_running(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()
