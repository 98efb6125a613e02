"""Copilot CLI's logs: ``<home>/session-state/<session-id>/events.jsonl``, an event a line, linked by ``parentId``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from indexer.json_values import json_in, text_in
from indexer.transcripts.base import is_name
from smart_fork.agents.copilot import HOME
from smart_fork.agents.log_adapters import TreeAdapter, newest_first
from smart_fork.agents.storage import Storage

#: The name of a log, in a folder named after the session.
EVENTS = "events.jsonl"
#: The file beside a log with the session's directory and title.
WORKSPACE = "workspace.yaml"
_NAME, _NAMED = re.compile(r"^name: (.*)$", re.MULTILINE), re.compile(r"^user_named: true$", re.MULTILINE)


def sessions() -> Path:
    """Return the folder in which Copilot CLI keeps a folder for each session."""
    return HOME.folder() / "session-state"


def name_in(workspace: str) -> str:
    """Return the name that a person gave a session, from the text of its ``workspace.yaml``; else empty."""
    name = _NAME.search(workspace) if _NAMED.search(workspace) else None
    return _scalar(name[1].strip()) if name else ""


def _scalar(text: str) -> str:
    """Return the string that `text`, a YAML value on one line, stands for; empty for other values."""
    if text.startswith('"'):
        return text_in(json_in(text))
    if text.startswith("'"):
        return text[1:-1].replace("''", "'") if len(text) > 1 and text.endswith("'") else ""
    return "" if text.startswith(("|", ">", "&", "*", "!")) else text


class CopilotStorage(Storage):
    """The rule for the directories in which Copilot CLI can resume a session."""

    def finds(self, log: Path, cwd: str, directory: Path) -> bool:
        """Return True unless Copilot CLI would change from `directory` to the session's own directory, `cwd`."""
        return cwd == str(directory) or not Path(cwd).is_dir()


class CopilotAdapter(TreeAdapter):
    """The adapter that finds and reads Copilot CLI's sessions, each in a folder of its own; seen with 1.0.102."""

    name = "copilot"
    depth = 1
    fold = "copilot.session_reader:CopilotTree"

    def is_session(self, location: str, projects: str) -> bool:
        folder, _, name = location.rpartition("/")
        above, _, session_id = folder.rpartition("/")
        return name == EVENTS and above == projects and is_name(session_id)

    def locate(self, session_id: str) -> tuple[Path, ...]:
        if not session_id or "/" in session_id or "\0" in session_id:
            return ()
        places = (folder / session_id / EVENTS for folder, _ in self.folders())
        return newest_first(file for place in places if (file := self.log_at(str(place))))

    def projects_in(self, folder: str, own: str) -> Iterable[str]:
        """Return only `own`, the session's folder: no other folder in `folder` can have a log of the session."""
        return (own,)

    def id_of(self, path: Path) -> str:
        return path.parent.name if path.name == EVENTS else path.stem

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        return ("copilot", f"--resume={session_id}")
