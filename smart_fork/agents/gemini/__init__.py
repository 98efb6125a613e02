"""Gemini CLI, version 0.61.0 seen: ``tests/fixtures/gemini`` was written by it.

It deletes sessions that were resumed. What follows from that for us:

* a person's own log is never resumed as it is: it gets a second name first, under which it stays (`log`);
* a fork is a copy of ours under such a name (`copy`);
* copies of its logs are kept with the index, unless that is switched off (`log`).
"""

from __future__ import annotations

from smart_fork.agents.agent import Agent, Home, ProgramSpec, Sign, usual_facets

HOME = Home("GEMINI_CLI_HOME", ".gemini", ("tmp",), inside=".gemini")
#: The variable in which it tells its session to what it starts.
SESSION = "GEMINI_SESSION_ID"


class Gemini(Agent):
    """See `Agent`."""

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
    facets = usual_facets(
        "births", "prompts", tail="fold:TAIL", caller="command:GeminiCalls", codec="codec:GeminiCodec"
    )
