"""OpenCode, version 1.18 seen (fixtures: ``tests/fixtures/opencode``). OpenCode keeps all sessions in one database."""

from __future__ import annotations

import os
from pathlib import Path

from smart_fork.agents.agent import Agent, Home, ProgramSpec, Sign, usual_facets

HOME = Home("XDG_DATA_HOME", ".local/share/opencode", ("",), ("OPENCODE_DB",), "opencode")


def settings_folder() -> Path:
    """Return the folder of OpenCode's settings, which need not exist. XDG lets only absolute paths count."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(named) if named.startswith("/") else Path.home() / ".config") / "opencode"


class OpenCode(Agent):
    """The agent OpenCode: its names, folder and program, and the places of its facets."""

    name = "opencode"
    seen = "1.18.33"
    title = "OpenCode"
    home = HOME
    command = ProgramSpec("opencode", "opencode-ai", (Sign(r"(?m)^\s+opencode import <file>"),))
    tells = ("OPENCODE", "OPENCODE_PID")
    marks = ("OPENCODE",)
    clients = ("opencode",)
    facets = usual_facets("prompts", forms="forms:OpenCodeForms")
