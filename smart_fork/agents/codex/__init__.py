"""Codex, the rollouts of 2025 to those of 0.169 seen."""

from __future__ import annotations

from types import MappingProxyType

from smart_fork.agents.agent import Agent, ProgramSpec, Sign
from smart_fork.agents.codex.home import HOME


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
    facets = MappingProxyType({
        "reader": "log:CodexAdapter",
        "heads": "head:CodexHeads",
        "tail": "tail:CODEX",
        "starter": "command:CodexStarter",
        "births": "birth:CodexBirths",
        "storage": "storage:CodexStorage",
        "screen": "smart_fork.agents.questions:Screen",
        "copier": "copy:CodexCopier",
        "forms": "forms:CodexForms",
        "cutter": "cut:CodexCutter",
        "login": "login:CodexLogin",
        "caller": "caller:CodexCalls",
        "hooks": "hooks:CodexHooks",
        "presence": "command:PRESENCE",
        "registration": "registration:CodexRegistration",
        "subagents": "subagents:CodexSubAgents",
        "codec": "codec:CodexCodec",
    })  # fmt: skip

    def model_window(self) -> int:
        """See `Agent.model_window`."""
        from smart_fork.agents.codex.window import said_last

        return said_last() or self.window
