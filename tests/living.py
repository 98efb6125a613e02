"""Processes that a test looks at while they may end: one that is gone is an answer, never an error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil


def lives(process: psutil.Process) -> bool:
    """Whether it runs. What has ended does not, also where nobody has asked for its status yet."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def arguments(process: psutil.Process) -> list[str]:
    """Its command; nothing where it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def directory(process: psutil.Process) -> Path | None:
    """Where it runs; None where it has ended."""
    try:
        return Path(process.cwd())
    except psutil.Error:
        return None


def kill(process: psutil.Process) -> None:
    """End it, if it has not ended by itself."""
    with suppress(psutil.NoSuchProcess):
        process.kill()
