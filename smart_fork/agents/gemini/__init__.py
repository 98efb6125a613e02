"""Gemini CLI, version 0.61.0 seen: ``tests/fixtures/gemini`` was written by it.

It deletes sessions that were resumed. What follows from that for us:

* a person's own log is never resumed as it is: it gets a second name first, under which it stays (`storage`);
* a fork is a copy of ours under such a name (`copy`);
* copies of its logs are kept with the index, unless that is switched off (`log`).
"""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from smart_fork.agents.agent import Agent, ProgramSpec, Sign
from smart_fork.agents.gemini.home import HOME, SESSION

if TYPE_CHECKING:
    from smart_fork.agents.gemini.caller import GeminiCalls
    from smart_fork.agents.gemini.command import GeminiStarter
    from smart_fork.agents.gemini.copy import GeminiCopier
    from smart_fork.agents.gemini.forms import GeminiForms
    from smart_fork.agents.gemini.head import GeminiHeads
    from smart_fork.agents.gemini.hooks import GeminiHooks
    from smart_fork.agents.gemini.log import GeminiAdapter
    from smart_fork.agents.gemini.login import GeminiLogin
    from smart_fork.agents.gemini.presence import GeminiPresence
    from smart_fork.agents.gemini.registration import GeminiRegistration
    from smart_fork.agents.gemini.screen import GeminiScreen
    from smart_fork.agents.gemini.storage import GeminiStorage
    from smart_fork.agents.gemini.subagents import GeminiSubAgents
    from smart_fork.agents.gemini.work import GeminiWork
    from smart_fork.agents.tail import Tail


class Gemini(Agent):
    """See `Agent`."""

    name = "gemini"
    seen = "0.61.0"
    title = "Gemini CLI"
    lacks = MappingProxyType({
        "cut": "its records replace each other, so a cut text would come back with the next record",
    })  # fmt: skip
    home = HOME
    command = ProgramSpec(
        "gemini",
        "SMART_FORK_GEMINI",
        "Install Gemini CLI (npm install -g @google/gemini-cli, on Node 20 or newer), or set SMART_FORK_GEMINI to it.",
        (Sign(("--help",), r"--session-file\b"),),
    )
    tells = (SESSION, "GEMINI_CLI", "GEMINI_PROJECT_DIR", "GEMINI_CWD", "GEMINI_PLANS_DIR", "GEMINI_CLI_NO_RELAUNCH")
    marks = ("GEMINI_CLI", SESSION)
    session_variables = (SESSION,)
    project_variables = ("GEMINI_PROJECT_DIR",)
    clients = ("gemini",)
    window = 1_000_000

    @cached_property
    def reader(self) -> GeminiAdapter:
        """See `Agent.reader`."""
        from smart_fork.agents.gemini.log import GeminiAdapter

        return GeminiAdapter()

    @cached_property
    def heads(self) -> GeminiHeads:
        """See `Agent.heads`."""
        from smart_fork.agents.gemini.head import GeminiHeads

        return GeminiHeads()

    @cached_property
    def tail(self) -> Tail:
        """See `Agent.tail`."""
        from smart_fork.agents.gemini.tail import GEMINI

        return GEMINI

    @cached_property
    def starter(self) -> GeminiStarter:
        """See `Agent.starter`."""
        from smart_fork.agents.gemini.command import GeminiStarter

        return GeminiStarter()

    @cached_property
    def storage(self) -> GeminiStorage:
        """See `Agent.storage`."""
        from smart_fork.agents.gemini.storage import GeminiStorage

        return GeminiStorage()

    @cached_property
    def copier(self) -> GeminiCopier:
        """See `Agent.copier`."""
        from smart_fork.agents.gemini.copy import GeminiCopier

        return GeminiCopier()

    @cached_property
    def forms(self) -> GeminiForms:
        """See `Agent.forms`."""
        from smart_fork.agents.gemini.forms import GeminiForms

        return GeminiForms()

    @cached_property
    def hooks(self) -> GeminiHooks:
        """See `Agent.hooks`."""
        from smart_fork.agents.gemini.hooks import GeminiHooks

        return GeminiHooks()

    @cached_property
    def login(self) -> GeminiLogin:
        """See `Agent.login`."""
        from smart_fork.agents.gemini.login import GeminiLogin

        return GeminiLogin()

    @cached_property
    def registration(self) -> GeminiRegistration:
        """See `Agent.registration`."""
        from smart_fork.agents.gemini.registration import GeminiRegistration

        return GeminiRegistration()

    @cached_property
    def screen(self) -> GeminiScreen:
        """See `Agent.screen`."""
        from smart_fork.agents.gemini.screen import GeminiScreen

        return GeminiScreen()

    @cached_property
    def presence(self) -> GeminiPresence:
        """See `Agent.presence`."""
        from smart_fork.agents.gemini.presence import GeminiPresence

        return GeminiPresence(("gemini",), forks=("--session-file",))

    @cached_property
    def caller(self) -> GeminiCalls:
        """See `Agent.caller`."""
        from smart_fork.agents.gemini.caller import GeminiCalls

        return GeminiCalls()

    @cached_property
    def subagents(self) -> GeminiSubAgents:
        """See `Agent.subagents`."""
        from smart_fork.agents.gemini.subagents import GeminiSubAgents

        return GeminiSubAgents()

    @cached_property
    def work(self) -> GeminiWork:
        """See `Agent.work`."""
        from smart_fork.agents.gemini.work import GeminiWork

        return GeminiWork()
