"""Where state and the agents' homes live. Every location can be moved by one environment variable (X-004)."""

from __future__ import annotations

import os
from pathlib import Path


def state_home() -> Path:
    """``SMART_FORK_HOME`` or ``~/.smart-fork``: everything that smart-fork writes."""
    return Path(os.environ.get("SMART_FORK_HOME") or Path.home() / ".smart-fork").expanduser()


def claude_home() -> Path:
    """``CLAUDE_CONFIG_DIR`` or ``~/.claude`` (F-173)."""
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude").expanduser()


def codex_home() -> Path:
    """``CODEX_HOME`` or ``~/.codex`` (F-173)."""
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex").expanduser()


def private_dir(path: Path) -> Path:
    """Create `path` and its missing parents, each with mode 0700, and return it."""
    if not path.is_dir():
        private_dir(path.parent)  # `parents=True` would make them with the mode of any other folder
        path.mkdir(exist_ok=True, mode=0o700)
    return path


def index_root() -> Path:
    """The folder of the Markdown exports, one sub-folder an agent."""
    return state_home() / "index"


def index_db() -> Path:
    """The search index. It can always be rebuilt from the logs."""
    return state_home() / "index.db"
