"""Copilot CLI's own folder: ``COPILOT_HOME`` or ``~/.copilot``; in it a folder for each session."""

from __future__ import annotations

from pathlib import Path

from smart_fork.agents.agent import Home

HOME = Home("COPILOT_HOME", ".copilot")
copilot_home = HOME.folder
#: The variable in which it tells its session to what it starts.
SESSION = "COPILOT_AGENT_SESSION_ID"
#: What a session's log is called, in the folder that is named after the session.
EVENTS = "events.jsonl"
#: And what says beside it where it works, and what it is called.
WORKSPACE = "workspace.yaml"


def sessions() -> Path:
    """The folder below which all sessions are."""
    return copilot_home() / "session-state"
