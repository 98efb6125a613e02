"""The agent GitHub Copilot CLI, seen in version 1.0.102 (fixtures: ``tests/fixtures/copilot``)."""

from __future__ import annotations

from smart_fork.agents.agent import Agent, ProgramSpec, Sign, usual_facets
from smart_fork.agents.description import Home

HOME = Home("COPILOT_HOME", ".copilot", ("session-state",))
#: The variable with the session's id for programs that Copilot CLI starts.
SESSION = "COPILOT_AGENT_SESSION_ID"


class Copilot(Agent):
    """The description of Copilot CLI."""

    name = "copilot"
    seen = "1.0.102"
    title = "Copilot CLI"
    home = HOME
    command = ProgramSpec("copilot", "@github/copilot", (Sign(r"--session-id\b"), Sign(r"--resume\b")))
    tells = (SESSION, "COPILOT_PROJECT_DIR")
    marks = (SESSION,)
    session_variables = (SESSION,)
    project_variables = ("COPILOT_PROJECT_DIR",)
    clients = ("copilot",)
    facets = usual_facets("worker_sessions", "caller", "prompts")
