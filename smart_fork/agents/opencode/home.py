"""Where OpenCode keeps its sessions: one database in the folder of a person's data."""

from __future__ import annotations

import os
from pathlib import Path

from smart_fork.agents.description import Home


def settings_folder() -> Path:
    """The folder; it need not exist. A path that is not absolute does not count, as XDG wants it."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(named) if named.startswith("/") else Path.home() / ".config") / "opencode"


HOME = Home("XDG_DATA_HOME", ".local/share/opencode", ("",), ("OPENCODE_DB",), "opencode")


def database(home: Path | None = None) -> Path:
    """The database; it need not exist. ``OPENCODE_DB`` may name another one."""
    return (home or HOME.folder()) / (os.environ.get("OPENCODE_DB") or "opencode.db")
