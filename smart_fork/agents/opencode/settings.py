"""The folder of OpenCode's settings: ``opencode.json``, plugins."""

from __future__ import annotations

import os
from pathlib import Path


def settings_folder() -> Path:
    """The folder; it need not exist. A path that is not absolute does not count, as XDG wants it."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(named) if named.startswith("/") else Path.home() / ".config") / "opencode"
