"""The agent Claude Code: its names, folder, program and facets (see `Agent`). Logs of versions 1.0 to 2.1 were seen."""

from __future__ import annotations

from smart_fork.agents.agent import Agent, ProgramSpec, Sign, usual_facets
from smart_fork.agents.description import Home

HOME = Home("CLAUDE_CONFIG_DIR", ".claude")
#: The variable with the id of the session, for programs that Claude Code starts.
SESSION = "CLAUDE_CODE_SESSION_ID"


class Claude(Agent):
    """The description of Claude Code."""

    name = "claude"
    window = 200_000
    seen, newest = "2.1.197", "2.1.332"
    title = "Claude Code"
    home = HOME
    command = ProgramSpec("claude", "@anthropic-ai/claude-code", (Sign(r"--fork-session\b"),))
    tells = ("CLAUDECODE", SESSION, "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_PROJECT_DIR")
    marks = ("CLAUDECODE",)
    session_variables = (SESSION,)
    project_variables = ("CLAUDE_PROJECT_DIR",)
    clients = ("claude",)
    facets = usual_facets(
        "worker_sessions", screen="smart_fork.agents.screen:Screen", tail="live_status:TAIL",
        background="smart_fork.agents.start_command:Background",
    )  # fmt: skip
