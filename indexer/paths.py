"""Where our state lives. Every location can be moved by one environment variable."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path


def state_home() -> Path:
    """``SMART_FORK_HOME`` or ``~/.smart-fork``: everything that smart-fork writes."""
    return Path(os.environ.get("SMART_FORK_HOME") or Path.home() / ".smart-fork").expanduser()


def config_home() -> Path:
    """``XDG_CONFIG_HOME`` or ``~/.config``: where others keep their settings. A relative one is none."""
    said = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(said) if os.path.isabs(said) else Path.home() / ".config"  # noqa: PTH117 - of a string


def private_dir(path: Path) -> Path:
    """Create `path` and its missing parents, each with mode 0700, and return it."""
    if not path.is_dir():
        private_dir(path.parent)  # `parents=True` would make them with the mode of any other folder
        path.mkdir(exist_ok=True, mode=0o700)
    return path


def file_name(session_id: str) -> str:
    """A name for what belongs to a session. Ids come from logs: whatever could leave a folder is replaced."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", session_id).lstrip(".")[:120]
    if not safe or safe != session_id:  # no two sessions share a file
        safe += "-" + hashlib.blake2b(session_id.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return safe


def index_root() -> Path:
    """The folder of the Markdown exports, one sub-folder an agent."""
    return state_home() / "index"


def checkpoints_dir() -> Path:
    """The folder of the lists of sessions that repositories keep themselves. They can always be made again."""
    return state_home() / "checkpoints"


def index_db() -> Path:
    """The search index. It can always be rebuilt from the logs."""
    return state_home() / "index.db"
