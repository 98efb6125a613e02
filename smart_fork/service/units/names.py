"""The name of a home's unit. Each home has its own service."""

from __future__ import annotations

import hashlib
import os
import pwd
from pathlib import Path

from indexer.paths import state_home


def login_home() -> Path:
    """Return the home of the login, whatever HOME says: launchd and systemd know no other."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def is_usual(state: Path) -> bool:
    """Return whether this is the default state folder."""
    return os.path.realpath(state) == os.path.realpath(login_home() / ".smart-fork")


def mark() -> str:
    """Return the suffix of the unit's name: empty for the default state folder."""
    if is_usual(state_home()):
        return ""
    state = os.path.realpath(state_home())
    return "-" + hashlib.blake2b(state.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
