"""Codex, the rollouts of 2025 to those of 0.169 seen."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from smart_fork.agents.agent import Agent, ProgramSpec, Sign
from smart_fork.agents.codex.home import HOME

if TYPE_CHECKING:
    from smart_fork.agents.codex.birth import CodexBirths
    from smart_fork.agents.codex.caller import CodexCalls
    from smart_fork.agents.codex.command import CodexStarter
    from smart_fork.agents.codex.copy import CodexCopier
    from smart_fork.agents.codex.cut import CodexCutter
    from smart_fork.agents.codex.forms import CodexForms
    from smart_fork.agents.codex.head import CodexHeads
    from smart_fork.agents.codex.hooks import CodexHooks
    from smart_fork.agents.codex.log import CodexAdapter
    from smart_fork.agents.codex.login import CodexLogin
    from smart_fork.agents.codex.registration import CodexRegistration
    from smart_fork.agents.codex.storage import CodexStorage
    from smart_fork.agents.codex.subagents import CodexSubAgents
    from smart_fork.agents.codex.work import CodexWork
    from smart_fork.agents.presence import Presence
    from smart_fork.agents.questions import Screen
    from smart_fork.agents.tail import Tail


class Codex(Agent):
    """See `Agent`."""

    name = "codex"
    window = 258_400
    seen = "0.169.0"
    title = "Codex"
    home = HOME
    command = ProgramSpec(
        "codex",
        "SMART_FORK_CODEX",
        "Install Codex (npm install -g @openai/codex), or set SMART_FORK_CODEX to it.",
        (
            Sign(("--help",), r"(?m)^\s+fork\b"),
            Sign(("exec", "--help"), r"(?m)^\s+fork\b", headless=True),
        ),
    )
    tells = ("CODEX_SESSION_ID", "CODEX_THREAD_ID")
    marks = ("CODEX_THREAD_ID", "CODEX_SESSION_ID")
    session_variables = ("CODEX_THREAD_ID",)
    clients = ("codex",)

    def model_window(self) -> int:
        """See `Agent.model_window`."""
        from smart_fork.agents.codex.window import said_last

        return said_last() or self.window

    @cached_property
    def reader(self) -> CodexAdapter:
        """See `Agent.reader`."""
        from smart_fork.agents.codex.log import CodexAdapter

        return CodexAdapter()

    @cached_property
    def heads(self) -> CodexHeads:
        """See `Agent.heads`."""
        from smart_fork.agents.codex.head import CodexHeads

        return CodexHeads()

    @cached_property
    def tail(self) -> Tail:
        """See `Agent.tail`."""
        from smart_fork.agents.codex.tail import CODEX

        return CODEX

    @cached_property
    def starter(self) -> CodexStarter:
        """See `Agent.starter`."""
        from smart_fork.agents.codex.command import CodexStarter

        return CodexStarter()

    @cached_property
    def births(self) -> CodexBirths:
        """See `Agent.births`."""
        from smart_fork.agents.codex.birth import CodexBirths

        return CodexBirths()

    @cached_property
    def storage(self) -> CodexStorage:
        """See `Agent.storage`."""
        from smart_fork.agents.codex.storage import CodexStorage

        return CodexStorage()

    @cached_property
    def screen(self) -> Screen:
        """See `Agent.screen`."""
        from smart_fork.agents.questions import Screen

        return Screen()

    @cached_property
    def copier(self) -> CodexCopier:
        """See `Agent.copier`."""
        from smart_fork.agents.codex.copy import CodexCopier

        return CodexCopier()

    @cached_property
    def forms(self) -> CodexForms:
        """See `Agent.forms`."""
        from smart_fork.agents.codex.forms import CodexForms

        return CodexForms()

    @cached_property
    def cutter(self) -> CodexCutter:
        """See `Agent.cutter`."""
        from smart_fork.agents.codex.cut import CodexCutter

        return CodexCutter()

    @cached_property
    def login(self) -> CodexLogin:
        """See `Agent.login`."""
        from smart_fork.agents.codex.login import CodexLogin

        return CodexLogin()

    @cached_property
    def caller(self) -> CodexCalls:
        """See `Agent.caller`."""
        from smart_fork.agents.codex.caller import CodexCalls

        return CodexCalls()

    @cached_property
    def hooks(self) -> CodexHooks:
        """See `Agent.hooks`."""
        from smart_fork.agents.codex.hooks import CodexHooks

        return CodexHooks()

    @cached_property
    def presence(self) -> Presence:
        """See `Agent.presence`."""
        from smart_fork.agents.presence import Presence

        return Presence(("codex",), forks=("fork",))

    @cached_property
    def registration(self) -> CodexRegistration:
        """See `Agent.registration`."""
        from smart_fork.agents.codex.registration import CodexRegistration

        return CodexRegistration()

    @cached_property
    def subagents(self) -> CodexSubAgents:
        """See `Agent.subagents`."""
        from smart_fork.agents.codex.subagents import CodexSubAgents

        return CodexSubAgents()

    @cached_property
    def work(self) -> CodexWork:
        """See `Agent.work`."""
        from smart_fork.agents.codex.work import CodexWork

        return CodexWork()
