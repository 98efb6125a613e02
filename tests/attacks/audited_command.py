"""`smart-fork`, with a list of what it opens, writes, removes and starts; for the attack on a service.

    python tests/attacks/audited_command.py FILE serve

FILE has one JSON array a line: the event (as Python's audit hooks name it) and what it was about, each once.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

NOTED = {
    "open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
    "subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "pty.spawn", "socket.connect",
}  # fmt: skip


def watch(file: str) -> None:
    """Note everything from here on."""
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    seen: set[str] = set()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in NOTED:
            return
        line = json.dumps([event, *map(_plain, arguments[:3])])
        if line not in seen:
            seen.add(line)
            os.write(out, line.encode() + b"\n")

    sys.addaudithook(note)


def _plain(value: object) -> object:
    if isinstance(value, bytes | os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int) or value is None else type(value).__name__


if __name__ == "__main__":
    from smart_fork.cli.main import main

    watch(sys.argv.pop(1))
    main()
