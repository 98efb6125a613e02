"""Which processes a process was started by: the only thing about it that it cannot have inherited from another one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from indexer.shapes import dataclass

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "ash", "busybox"})
#: A hook, a shell, the agent, and what started the agent.
_FAR_ENOUGH = 6
_PS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A process further up, and the words of its command as far as the system tells them."""

    pid: int
    words: tuple[str, ...]

    @property
    def is_shell(self) -> bool:
        """Whether it only hands a command on."""
        return bool(self.words) and self.words[0].rpartition("/")[2].lstrip("-") in SHELLS


def ancestors() -> tuple[Ancestor, ...] | None:
    """Those of this process, the nearest first; `None` where the system does not tell."""
    look = _proc if Path("/proc/self/stat").exists() else _ps
    found: list[Ancestor] = []
    pid = os.getppid()
    try:
        while pid > 1 and len(found) < _FAR_ENOUGH:
            above, words = look(pid)
            found.append(Ancestor(pid, words))
            pid = above
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        pass  # it has ended meanwhile, or is nobody's business
    return tuple(found) or None


def _proc(pid: int) -> tuple[int, tuple[str, ...]]:
    # Behind the name, which may contain anything, stand the state and the parent.
    above = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return above, tuple(os.fsdecode(word) for word in words if word)


def _ps(pid: int) -> tuple[int, tuple[str, ...]]:
    done = subprocess.run(
        ["ps", "-o", "ppid=,command=", "-p", str(pid)], capture_output=True, timeout=_PS_SECONDS, check=True
    )
    above, *words = os.fsdecode(done.stdout).split()
    return int(above), tuple(words)
