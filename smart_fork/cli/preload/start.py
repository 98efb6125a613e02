"""Starts the preloader for the next command."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from indexer.safe_files import private_dir, state_home
from indexer.settings import Setting
from smart_fork.cli.preload.client import socket_path
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Processes


def begin() -> None:
    """Start the preloader, detached, where this machine can have one. It ends at once where there is one already.

    A home in which smart-fork keeps nothing gets none: looking at something leaves no trace. So does
    ``SMART_FORK_BACKGROUND=0``.
    """
    path = None if Setting.BACKGROUND.is_off() else socket_path()
    if path is None or not state_home().is_dir() or _listens(path):
        return
    with suppress(SmartForkError, OSError):  # the command has done its work all the same
        output = private_dir(state_home() / "logs") / "preload.log"
        command = Processes.python("smart_fork.cli.preload.server")
        if not sys.flags.isolated and any(name.startswith("PYTHON") for name in os.environ):
            command[1] = "-P"  # it is found by who has read the same variables
        Processes().start(command, cwd=state_home(), env=dict(os.environ), log=output)


def _listens(path: str) -> bool:
    """Return whether a preloader listens: the socket of one that was killed is still there."""
    import errno
    import socket

    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(path) not in (errno.ENOENT, errno.ECONNREFUSED)
