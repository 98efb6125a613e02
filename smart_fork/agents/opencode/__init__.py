"""OpenCode, version 1.18 seen (fixtures: ``tests/fixtures/opencode``). It has no log files: one database has all."""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from smart_fork.agents.agent import Agent, ProgramSpec, Sign
from smart_fork.agents.opencode.home import HOME

if TYPE_CHECKING:
    from smart_fork.agents.opencode.birth import OpenCodeBirths
    from smart_fork.agents.opencode.caller import OpenCodeCalls
    from smart_fork.agents.opencode.command import OpenCodeStarter
    from smart_fork.agents.opencode.copy import OpenCodeCopier
    from smart_fork.agents.opencode.head import OpenCodeHeads
    from smart_fork.agents.opencode.hooks import OpenCodeHooks
    from smart_fork.agents.opencode.log import OpenCodeAdapter
    from smart_fork.agents.opencode.login import OpenCodeLogin
    from smart_fork.agents.opencode.registration import OpenCodeRegistration
    from smart_fork.agents.opencode.screen import OpenCodeScreen
    from smart_fork.agents.opencode.storage import OpenCodeStorage
    from smart_fork.agents.opencode.subagents import OpenCodeSubAgents
    from smart_fork.agents.opencode.teller import OpenCodeTeller
    from smart_fork.agents.opencode.work import OpenCodeWork
    from smart_fork.agents.presence import Presence
    from smart_fork.agents.tail import Tail


class OpenCode(Agent):
    """See `Agent`."""

    name = "opencode"
    seen = "1.18.33"
    title = "OpenCode"
    lacks = MappingProxyType({
        "cut": "all sessions are in one database, which its running programs write to",
        "shared": "its records are database rows, which cannot be shared yet",
    })  # fmt: skip
    home = HOME
    command = ProgramSpec(
        "opencode",
        "SMART_FORK_OPENCODE",
        "Install OpenCode (npm install -g opencode-ai), or set SMART_FORK_OPENCODE to it.",
        (Sign(("--help",), r"(?m)^\s+opencode import <file>"),),
    )
    tells = ("OPENCODE", "OPENCODE_PID")
    marks = ("OPENCODE",)
    clients = ("opencode",)

    @cached_property
    def reader(self) -> OpenCodeAdapter:
        """See `Agent.reader`."""
        from smart_fork.agents.opencode.log import OpenCodeAdapter

        return OpenCodeAdapter()

    @cached_property
    def heads(self) -> OpenCodeHeads:
        """See `Agent.heads`."""
        from smart_fork.agents.opencode.head import OpenCodeHeads

        return OpenCodeHeads()

    @cached_property
    def tail(self) -> Tail:
        """See `Agent.tail`."""
        from smart_fork.agents.opencode.tail import OPENCODE

        return OPENCODE

    @cached_property
    def starter(self) -> OpenCodeStarter:
        """See `Agent.starter`."""
        from smart_fork.agents.opencode.command import OpenCodeStarter

        return OpenCodeStarter()

    @cached_property
    def copier(self) -> OpenCodeCopier:
        """See `Agent.copier`."""
        from smart_fork.agents.opencode.copy import OpenCodeCopier

        return OpenCodeCopier()

    @cached_property
    def teller(self) -> OpenCodeTeller:
        """See `Agent.teller`."""
        from smart_fork.agents.opencode.teller import OpenCodeTeller

        return OpenCodeTeller()

    @cached_property
    def screen(self) -> OpenCodeScreen:
        """See `Agent.screen`."""
        from smart_fork.agents.opencode.screen import OpenCodeScreen

        return OpenCodeScreen()

    @cached_property
    def login(self) -> OpenCodeLogin:
        """See `Agent.login`."""
        from smart_fork.agents.opencode.login import OpenCodeLogin

        return OpenCodeLogin()

    @cached_property
    def births(self) -> OpenCodeBirths:
        """See `Agent.births`."""
        from smart_fork.agents.opencode.birth import OpenCodeBirths

        return OpenCodeBirths()

    @cached_property
    def storage(self) -> OpenCodeStorage:
        """See `Agent.storage`."""
        from smart_fork.agents.opencode.storage import OpenCodeStorage

        return OpenCodeStorage()

    @cached_property
    def caller(self) -> OpenCodeCalls:
        """See `Agent.caller`."""
        from smart_fork.agents.opencode.caller import OpenCodeCalls

        return OpenCodeCalls()

    @cached_property
    def hooks(self) -> OpenCodeHooks:
        """See `Agent.hooks`."""
        from smart_fork.agents.opencode.hooks import OpenCodeHooks

        return OpenCodeHooks()

    @cached_property
    def presence(self) -> Presence:
        """See `Agent.presence`."""
        from smart_fork.agents.presence import Presence

        return Presence(("opencode",), forks=("--fork",))

    @cached_property
    def registration(self) -> OpenCodeRegistration:
        """See `Agent.registration`."""
        from smart_fork.agents.opencode.registration import OpenCodeRegistration

        return OpenCodeRegistration()

    @cached_property
    def subagents(self) -> OpenCodeSubAgents:
        """See `Agent.subagents`."""
        from smart_fork.agents.opencode.subagents import OpenCodeSubAgents

        return OpenCodeSubAgents()

    @cached_property
    def work(self) -> OpenCodeWork:
        """See `Agent.work`."""
        from smart_fork.agents.opencode.work import OpenCodeWork

        return OpenCodeWork()
