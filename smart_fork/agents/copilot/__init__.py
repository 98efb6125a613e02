"""GitHub Copilot CLI, version 1.0.102 seen: ``tests/fixtures/copilot`` was written by it."""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from smart_fork.agents.agent import Agent, ProgramSpec, Sign
from smart_fork.agents.copilot.home import HOME, SESSION

if TYPE_CHECKING:
    from smart_fork.agents.copilot.command import CopilotStarter
    from smart_fork.agents.copilot.copy import CopilotCopier
    from smart_fork.agents.copilot.forms import CopilotForms
    from smart_fork.agents.copilot.head import CopilotHeads
    from smart_fork.agents.copilot.hooks import CopilotHooks
    from smart_fork.agents.copilot.log import CopilotAdapter
    from smart_fork.agents.copilot.login import CopilotLogin
    from smart_fork.agents.copilot.presence import CopilotPresence
    from smart_fork.agents.copilot.registration import CopilotRegistration
    from smart_fork.agents.copilot.screen import CopilotScreen
    from smart_fork.agents.copilot.subagents import CopilotSubAgents
    from smart_fork.agents.copilot.work import CopilotWork
    from smart_fork.agents.storage import Storage
    from smart_fork.agents.tail import Tail


class Copilot(Agent):
    """See `Agent`."""

    name = "copilot"
    seen = "1.0.102"
    title = "Copilot CLI"
    lacks = MappingProxyType({
        "cut": "it also keeps the conversation in its own database",
    })  # fmt: skip
    home = HOME
    command = ProgramSpec(
        "copilot",
        "SMART_FORK_COPILOT",
        "Install GitHub Copilot CLI (npm install -g @github/copilot), or set SMART_FORK_COPILOT to it.",
        (Sign(("--help",), r"--session-id\b"), Sign(("--help",), r"--resume\b")),
    )
    tells = (SESSION, "COPILOT_PROJECT_DIR")
    marks = (SESSION,)
    session_variables = (SESSION,)
    project_variables = ("COPILOT_PROJECT_DIR",)
    clients = ("copilot",)

    @cached_property
    def reader(self) -> CopilotAdapter:
        """See `Agent.reader`."""
        from smart_fork.agents.copilot.log import CopilotAdapter

        return CopilotAdapter()

    @cached_property
    def heads(self) -> CopilotHeads:
        """See `Agent.heads`."""
        from smart_fork.agents.copilot.head import CopilotHeads

        return CopilotHeads()

    @cached_property
    def tail(self) -> Tail:
        """See `Agent.tail`."""
        from smart_fork.agents.copilot.tail import COPILOT

        return COPILOT

    @cached_property
    def starter(self) -> CopilotStarter:
        """See `Agent.starter`."""
        from smart_fork.agents.copilot.command import CopilotStarter

        return CopilotStarter()

    @cached_property
    def storage(self) -> Storage:
        """See `Agent.storage`: it finds its sessions from every directory."""
        from smart_fork.agents.storage import Storage

        return Storage()

    @cached_property
    def copier(self) -> CopilotCopier:
        """See `Agent.copier`."""
        from smart_fork.agents.copilot.copy import CopilotCopier

        return CopilotCopier()

    @cached_property
    def forms(self) -> CopilotForms:
        """See `Agent.forms`."""
        from smart_fork.agents.copilot.forms import CopilotForms

        return CopilotForms()

    @cached_property
    def login(self) -> CopilotLogin:
        """See `Agent.login`."""
        from smart_fork.agents.copilot.login import CopilotLogin

        return CopilotLogin()

    @cached_property
    def hooks(self) -> CopilotHooks:
        """See `Agent.hooks`."""
        from smart_fork.agents.copilot.hooks import CopilotHooks

        return CopilotHooks()

    @cached_property
    def registration(self) -> CopilotRegistration:
        """See `Agent.registration`."""
        from smart_fork.agents.copilot.registration import CopilotRegistration

        return CopilotRegistration()

    @cached_property
    def screen(self) -> CopilotScreen:
        """See `Agent.screen`."""
        from smart_fork.agents.copilot.screen import CopilotScreen

        return CopilotScreen()

    @cached_property
    def presence(self) -> CopilotPresence:
        """See `Agent.presence`."""
        from smart_fork.agents.copilot.presence import CopilotPresence

        return CopilotPresence(("copilot",))

    @cached_property
    def subagents(self) -> CopilotSubAgents:
        """See `Agent.subagents`."""
        from smart_fork.agents.copilot.subagents import CopilotSubAgents

        return CopilotSubAgents()

    @cached_property
    def work(self) -> CopilotWork:
        """See `Agent.work`."""
        from smart_fork.agents.copilot.work import CopilotWork

        return CopilotWork()
