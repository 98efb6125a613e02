"""OpenCode, version 1.18 seen (fixtures: ``tests/fixtures/opencode``). It has no log files: one database has all."""

from __future__ import annotations

import os
from pathlib import Path

from smart_fork.agents.agent import Agent, Home, ProgramSpec, Sign, usual_facets

HOME = Home("XDG_DATA_HOME", ".local/share/opencode", ("",), ("OPENCODE_DB",), "opencode")


def settings_folder() -> Path:
    """Return the folder of its settings, which need not exist.

    A path that is not absolute does not count, as XDG wants it.
    """
    named = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(named) if named.startswith("/") else Path.home() / ".config") / "opencode"


class OpenCode(Agent):
    """See `Agent`."""

    name = "opencode"
    seen = "1.18.33"
    title = "OpenCode"
    home = HOME
    command = ProgramSpec("opencode", "opencode-ai", (Sign(r"(?m)^\s+opencode import <file>"),))
    tells = ("OPENCODE", "OPENCODE_PID")
    marks = ("OPENCODE",)
    clients = ("opencode",)
    facets = usual_facets("prompts", heads="head:OpenCodeHeads", forms="forms:OpenCodeForms")
