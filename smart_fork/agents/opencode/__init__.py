"""OpenCode, version 1.18 seen (fixtures: ``tests/fixtures/opencode``). It has no log files: one database has all."""

from __future__ import annotations

from smart_fork.agents.agent import Agent, ProgramSpec, Sign, usual
from smart_fork.agents.opencode.home import HOME


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
    facets = usual("prompts", caller="hooks:OpenCodeCalls", forms="forms:OpenCodeForms")
