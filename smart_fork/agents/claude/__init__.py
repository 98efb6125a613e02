"""Claude Code, versions 1.0 to 2.1 seen."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from smart_fork.agents.agent import Agent, ProgramSpec, Sign
from smart_fork.agents.claude.home import HOME, SESSION

if TYPE_CHECKING:
    from smart_fork.agents.claude.caller import ClaudeCalls
    from smart_fork.agents.claude.command import ClaudeStarter
    from smart_fork.agents.claude.copy import ClaudeCopier
    from smart_fork.agents.claude.cut import ClaudeCutter
    from smart_fork.agents.claude.forms import ClaudeForms
    from smart_fork.agents.claude.head import ClaudeHeads
    from smart_fork.agents.claude.hooks import ClaudeHooks
    from smart_fork.agents.claude.log import ClaudeAdapter
    from smart_fork.agents.claude.login import ClaudeLogin
    from smart_fork.agents.claude.registration import ClaudeRegistration
    from smart_fork.agents.claude.storage import ClaudeStorage
    from smart_fork.agents.claude.subagents import ClaudeSubAgents
    from smart_fork.agents.claude.work import ClaudeWork
    from smart_fork.agents.presence import Presence
    from smart_fork.agents.questions import Screen
    from smart_fork.agents.tail import Tail


class Claude(Agent):
    """See `Agent`."""

    name = "claude"
    window = 200_000
    seen = "2.1.197"
    title = "Claude Code"
    home = HOME
    command = ProgramSpec(
        "claude",
        "SMART_FORK_CLAUDE",
        "Install Claude Code (npm install -g @anthropic-ai/claude-code), or set SMART_FORK_CLAUDE to it.",
        (Sign(("--help",), r"--fork-session\b"),),
    )
    tells = (
        "CLAUDECODE",
        SESSION,
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_PROJECT_DIR",
    )
    marks = ("CLAUDECODE",)
    session_variables = (SESSION,)
    project_variables = ("CLAUDE_PROJECT_DIR",)
    clients = ("claude",)

    @cached_property
    def reader(self) -> ClaudeAdapter:
        """See `Agent.reader`."""
        from smart_fork.agents.claude.log import ClaudeAdapter

        return ClaudeAdapter()

    @cached_property
    def heads(self) -> ClaudeHeads:
        """See `Agent.heads`."""
        from smart_fork.agents.claude.head import ClaudeHeads

        return ClaudeHeads()

    @cached_property
    def tail(self) -> Tail:
        """See `Agent.tail`."""
        from smart_fork.agents.claude.tail import CLAUDE

        return CLAUDE

    @cached_property
    def starter(self) -> ClaudeStarter:
        """See `Agent.starter`."""
        from smart_fork.agents.claude.command import ClaudeStarter

        return ClaudeStarter()

    @cached_property
    def storage(self) -> ClaudeStorage:
        """See `Agent.storage`."""
        from smart_fork.agents.claude.storage import ClaudeStorage

        return ClaudeStorage()

    @cached_property
    def screen(self) -> Screen:
        """See `Agent.screen`."""
        from smart_fork.agents.questions import Screen

        return Screen()

    @cached_property
    def copier(self) -> ClaudeCopier:
        """See `Agent.copier`."""
        from smart_fork.agents.claude.copy import ClaudeCopier

        return ClaudeCopier()

    @cached_property
    def forms(self) -> ClaudeForms:
        """See `Agent.forms`."""
        from smart_fork.agents.claude.forms import ClaudeForms

        return ClaudeForms()

    @cached_property
    def cutter(self) -> ClaudeCutter:
        """See `Agent.cutter`."""
        from smart_fork.agents.claude.cut import ClaudeCutter

        return ClaudeCutter()

    @cached_property
    def login(self) -> ClaudeLogin:
        """See `Agent.login`."""
        from smart_fork.agents.claude.login import ClaudeLogin

        return ClaudeLogin()

    @cached_property
    def caller(self) -> ClaudeCalls:
        """See `Agent.caller`."""
        from smart_fork.agents.claude.caller import ClaudeCalls

        return ClaudeCalls()

    @cached_property
    def hooks(self) -> ClaudeHooks:
        """See `Agent.hooks`."""
        from smart_fork.agents.claude.hooks import ClaudeHooks

        return ClaudeHooks()

    @cached_property
    def presence(self) -> Presence:
        """See `Agent.presence`."""
        from smart_fork.agents.presence import Presence

        return Presence(("claude",), forks=("--fork-session",))

    @cached_property
    def registration(self) -> ClaudeRegistration:
        """See `Agent.registration`."""
        from smart_fork.agents.claude.registration import ClaudeRegistration

        return ClaudeRegistration()

    @cached_property
    def subagents(self) -> ClaudeSubAgents:
        """See `Agent.subagents`."""
        from smart_fork.agents.claude.subagents import ClaudeSubAgents

        return ClaudeSubAgents()

    @cached_property
    def work(self) -> ClaudeWork:
        """See `Agent.work`."""
        from smart_fork.agents.claude.work import ClaudeWork

        return ClaudeWork()
