"""The agent OpenCode (see `Agent`): one SQLite database. Seen in version 1.18 (``tests/fixtures/opencode``)."""

from __future__ import annotations

import os
from pathlib import Path

from smart_fork.agents.agent import Agent, ProgramSpec, Sign, usual_facets
from smart_fork.agents.description import Home

HOME = Home("XDG_DATA_HOME", ".local/share/opencode", ("",), ("OPENCODE_DB",), "opencode")


def settings_folder() -> Path:
    """Return the folder of OpenCode's settings. As XDG demands, a relative ``XDG_CONFIG_HOME`` is ignored."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(named) if named.startswith("/") else Path.home() / ".config") / "opencode"


class OpenCode(Agent):
    """The description of OpenCode."""

    name = "opencode"
    seen = "1.18.33"
    title = "OpenCode"
    home = HOME
    command = ProgramSpec("opencode", "opencode-ai", (Sign(r"(?m)^\s+opencode import <file>"),))
    tells = ("OPENCODE", "OPENCODE_PID")
    marks = ("OPENCODE",)
    clients = ("opencode",)
    facets = usual_facets("prompts", converter="converter:OpenCodeConverter")
