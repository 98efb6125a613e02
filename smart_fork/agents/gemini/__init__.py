"""The agent Gemini CLI, seen in version 0.61.0 (fixtures: ``tests/fixtures/gemini``).

Gemini CLI deletes the log of a session that was resumed, unless the log's name has the whole session id. smart-fork
therefore

* gives a person's log a second name, with the whole id, before Gemini CLI resumes it (`log_files`);
* names the copy for a fork in that form too (`session_writer`);
* keeps copies of Gemini CLI's logs with the index, unless the settings switch that off (`log_files`).
"""

from __future__ import annotations

from smart_fork.agents.agent import Agent, ProgramSpec, Sign, usual_facets
from smart_fork.agents.description import Home

HOME = Home("GEMINI_CLI_HOME", ".gemini", ("tmp",), inside=".gemini")
#: The variable with the session's id for programs that Gemini CLI starts.
SESSION = "GEMINI_SESSION_ID"


class Gemini(Agent):
    """The description of Gemini CLI."""

    name = "gemini"
    seen = "0.61.0"
    title = "Gemini CLI"
    home = HOME
    command = ProgramSpec("gemini", "@google/gemini-cli, on Node 20 or newer", (Sign(r"--session-file\b"),))
    tells = (SESSION, "GEMINI_CLI", "GEMINI_PROJECT_DIR", "GEMINI_CWD", "GEMINI_PLANS_DIR", "GEMINI_CLI_NO_RELAUNCH")
    marks = ("GEMINI_CLI", SESSION)
    session_variables = (SESSION,)
    project_variables = ("GEMINI_PROJECT_DIR",)
    clients = ("gemini",)
    window = 1_000_000
    facets = usual_facets("worker_sessions", "prompts", caller="runtime:GeminiCaller", codec="messages:GeminiCodec")
