"""The agent Qwen Code, seen in version 0.24.4 (fixtures: ``tests/fixtures/qwen``)."""

from __future__ import annotations

from smart_fork.agents.agent import Agent, ProgramSpec, Sign, usual_facets
from smart_fork.agents.description import Home

_RUNTIME = "QWEN_RUNTIME_DIR"
HOME = Home("QWEN_HOME", ".qwen", beside=(_RUNTIME,), runtime=_RUNTIME)
#: The variable with the session's id for programs that Qwen Code starts.
SESSION = "QWEN_CODE_SESSION_ID"


class Qwen(Agent):
    """The description of Qwen Code."""

    name = "qwen"
    window = 262_144
    seen = "0.24.4"
    title = "Qwen Code"
    home = HOME
    command = ProgramSpec("qwen", "@qwen-code/qwen-code, on Node 22 or newer", (Sign(r"--fork-session\b"),))
    tells = (SESSION, "QWEN_CODE_PROJECT_DIR", "QWEN_PROJECT_DIR", "QWEN_CODE")
    marks = (SESSION,)
    session_variables = (SESSION,)
    project_variables = ("QWEN_PROJECT_DIR",)
    clients = ("qwen",)
    facets = usual_facets("worker_sessions", "caller", "prompts")
