"""What the unit of a home is called: each home has a service of its own, and leaves those of others alone."""

from __future__ import annotations

import hashlib
import os
import pwd
from pathlib import Path

from indexer.paths import state_home


def login_home() -> Path:
    """Where whoever is logged in is at home, whatever HOME says: launchd and systemd know no other."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def is_usual(state: Path) -> bool:
    """Whether this is the state folder of somebody who has not chosen one."""
    return os.path.realpath(state) == os.path.realpath(login_home() / ".smart-fork")


def mark() -> str:
    """What tells this home's unit from others: nothing for the usual home."""
    if is_usual(state_home()):
        return ""
    state = os.path.realpath(state_home())
    return "-" + hashlib.blake2b(state.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
