"""Copilot CLI's own folder: ``COPILOT_HOME`` or ``~/.copilot``; in it a folder for each session."""

from __future__ import annotations

import re
from pathlib import Path

from indexer.values import json_in, text_in
from smart_fork.agents.description import Home

HOME = Home("COPILOT_HOME", ".copilot", ("session-state",))
copilot_home = HOME.folder
#: The variable in which it tells its session to what it starts.
SESSION = "COPILOT_AGENT_SESSION_ID"
#: What a session's log is called, in the folder that is named after the session.
EVENTS = "events.jsonl"
#: And what says beside it where it works, and what it is called.
WORKSPACE = "workspace.yaml"
_NAME, _NAMED = re.compile(r"^name: (.*)$", re.MULTILINE), re.compile(r"^user_named: true$", re.MULTILINE)


def sessions() -> Path:
    """The folder below which all sessions are."""
    return copilot_home() / "session-state"


def name_in(workspace: str) -> str:
    """Return the name that a person gave a session; empty without one."""
    name = _NAME.search(workspace) if _NAMED.search(workspace) else None
    return _scalar(name[1].strip()) if name else ""


def _scalar(text: str) -> str:
    """A text as YAML writes it in one line; empty where it needs more."""
    if text.startswith('"'):
        return text_in(json_in(text))
    if text.startswith("'"):
        return text[1:-1].replace("''", "'") if len(text) > 1 and text.endswith("'") else ""
    return "" if text.startswith(("|", ">", "&", "*", "!")) else text
