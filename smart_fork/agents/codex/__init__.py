"""The agent Codex: its names, folder, program and facets (see `Agent`). Logs from 2025 to version 0.169 were seen."""

from __future__ import annotations

from smart_fork.agents.agent import Agent, ProgramSpec, Sign, usual_facets
from smart_fork.agents.description import Home

HOME = Home("CODEX_HOME", ".codex", ("sessions", "archived_sessions"))


class Codex(Agent):
    """The description of Codex."""

    name = "codex"
    window = 258_400
    seen, newest = "0.169.0", "0.171.0"
    title = "Codex"
    home = HOME
    command = ProgramSpec(
        "codex", "@openai/codex", (Sign(r"(?m)^\s+fork\b"), Sign(r"(?m)^\s+fork\b", ("exec", "--help"), headless=True))
    )
    tells = ("CODEX_SESSION_ID", "CODEX_THREAD_ID")
    marks = ("CODEX_THREAD_ID", "CODEX_SESSION_ID")
    session_variables = ("CODEX_THREAD_ID",)
    clients = ("codex",)
    facets = usual_facets(
        "prompts", ancestry="ancestry:CodexAncestry", worker_sessions="ancestry:CodexWorkerSessions",
        codec="codec:CodexCodec", screen="smart_fork.agents.screen:Screen", tail="live_status:TAIL",
        subagents="subagents:CodexSubAgents",
    )  # fmt: skip
