"""Qwen Code, version 0.24.4 seen: ``tests/fixtures/qwen`` was written by it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from smart_fork.agents.agent import Agent, ProgramSpec, Sign
from smart_fork.agents.qwen.home import HOME, SESSION

if TYPE_CHECKING:
    from smart_fork.agents.qwen.command import QwenStarter
    from smart_fork.agents.qwen.copy import QwenCopier
    from smart_fork.agents.qwen.cut import QwenCutter
    from smart_fork.agents.qwen.forms import QwenForms
    from smart_fork.agents.qwen.head import QwenHeads
    from smart_fork.agents.qwen.hooks import QwenHooks
    from smart_fork.agents.qwen.log import QwenAdapter
    from smart_fork.agents.qwen.login import QwenLogin
    from smart_fork.agents.qwen.presence import QwenPresence
    from smart_fork.agents.qwen.registration import QwenRegistration
    from smart_fork.agents.qwen.screen import QwenScreen
    from smart_fork.agents.qwen.storage import QwenStorage
    from smart_fork.agents.qwen.subagents import QwenSubAgents
    from smart_fork.agents.qwen.work import QwenWork
    from smart_fork.agents.tail import Tail


class Qwen(Agent):
    """See `Agent`."""

    name = "qwen"
    window = 262_144
    seen = "0.24.4"
    title = "Qwen Code"
    home = HOME
    command = ProgramSpec(
        "qwen",
        "SMART_FORK_QWEN",
        "Install Qwen Code (npm install -g @qwen-code/qwen-code, on Node 22 or newer), or set SMART_FORK_QWEN to it.",
        (Sign(("--help",), r"--fork-session\b"),),
    )
    tells = (SESSION, "QWEN_CODE_PROJECT_DIR", "QWEN_PROJECT_DIR", "QWEN_CODE")
    marks = (SESSION,)
    session_variables = (SESSION,)
    project_variables = ("QWEN_PROJECT_DIR",)
    clients = ("qwen",)

    @cached_property
    def reader(self) -> QwenAdapter:
        """See `Agent.reader`."""
        from smart_fork.agents.qwen.log import QwenAdapter

        return QwenAdapter()

    @cached_property
    def heads(self) -> QwenHeads:
        """See `Agent.heads`."""
        from smart_fork.agents.qwen.head import QwenHeads

        return QwenHeads()

    @cached_property
    def tail(self) -> Tail:
        """See `Agent.tail`."""
        from smart_fork.agents.qwen.tail import QWEN

        return QWEN

    @cached_property
    def starter(self) -> QwenStarter:
        """See `Agent.starter`."""
        from smart_fork.agents.qwen.command import QwenStarter

        return QwenStarter()

    @cached_property
    def storage(self) -> QwenStorage:
        """See `Agent.storage`."""
        from smart_fork.agents.qwen.storage import QwenStorage

        return QwenStorage()

    @cached_property
    def copier(self) -> QwenCopier:
        """See `Agent.copier`."""
        from smart_fork.agents.qwen.copy import QwenCopier

        return QwenCopier()

    @cached_property
    def forms(self) -> QwenForms:
        """See `Agent.forms`."""
        from smart_fork.agents.qwen.forms import QwenForms

        return QwenForms()

    @cached_property
    def cutter(self) -> QwenCutter:
        """See `Agent.cutter`."""
        from smart_fork.agents.qwen.cut import QwenCutter

        return QwenCutter()

    @cached_property
    def hooks(self) -> QwenHooks:
        """See `Agent.hooks`."""
        from smart_fork.agents.qwen.hooks import QwenHooks

        return QwenHooks()

    @cached_property
    def login(self) -> QwenLogin:
        """See `Agent.login`."""
        from smart_fork.agents.qwen.login import QwenLogin

        return QwenLogin()

    @cached_property
    def registration(self) -> QwenRegistration:
        """See `Agent.registration`."""
        from smart_fork.agents.qwen.registration import QwenRegistration

        return QwenRegistration()

    @cached_property
    def screen(self) -> QwenScreen:
        """See `Agent.screen`."""
        from smart_fork.agents.qwen.screen import QwenScreen

        return QwenScreen()

    @cached_property
    def presence(self) -> QwenPresence:
        """See `Agent.presence`."""
        from smart_fork.agents.qwen.presence import QwenPresence

        return QwenPresence(("qwen",), forks=("--fork-session",))

    @cached_property
    def subagents(self) -> QwenSubAgents:
        """See `Agent.subagents`."""
        from smart_fork.agents.qwen.subagents import QwenSubAgents

        return QwenSubAgents()

    @cached_property
    def work(self) -> QwenWork:
        """See `Agent.work`."""
        from smart_fork.agents.qwen.work import QwenWork

        return QwenWork()
