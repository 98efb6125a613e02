"""Who asks a waiting process: only a process that could do the same itself.

A command runs with the variables and the directory of whoever asks. A process in a sandbox, or in another container,
must not get out of it that way.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from smart_fork.system.peers import credentials

_NAMESPACES = ("mnt", "net", "pid", "user")
#: Of ``/proc/PID/status``: what a process has given up, which it never gets back.
_GIVEN_UP = ("NoNewPrivs", "Seccomp", "CapEff", "CapBnd", "Groups")


def may_ask(line: socket.socket) -> bool:
    """Return whether the other side is the same user, in the same namespaces, with the same restrictions."""
    pid, user = credentials(line)
    try:
        return user == os.geteuid() and _confined(str(pid)) == _confined("self")
    except OSError:  # it has ended
        return False


def _confined(process: str) -> list[str]:
    of = Path("/proc", process)
    spaces = [str((of / "ns" / name).readlink()) for name in _NAMESPACES]
    status = (of / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    given_up = [line for line in status if line.partition(":")[0] in _GIVEN_UP]
    return [*spaces, str((of / "root").readlink()), *given_up, _label(of)]


def _label(of: Path) -> str:
    """Return what a security module calls the process; empty without one."""
    try:
        return (of / "attr" / "current").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
