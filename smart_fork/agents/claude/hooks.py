"""Claude Code's hooks, in its ``settings.json``."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from smart_fork.agents.agent import Calls, ClientCall, newest_logs
from smart_fork.agents.claude import HOME, SESSION
from smart_fork.agents.hooks import Hooks


class ClaudeHooks(Hooks):
    """See `Hooks`."""

    edits = "Edit|MultiEdit"
    failures = ("PostToolUseFailure", "Bash")
    #: No others: it stops at its start to ask about an event that it does not know.
    events = ("SessionStart", "UserPromptSubmit", "Notification", "Stop", "SessionEnd")


#: A shorter id of a tool call says too little to recognise a log by.
MIN_CALL_ID = 8
#: How far back in a log the call that is just being made can stand.
TAIL_BYTES = 512 * 1024
#: So often, and so far apart, it is looked for where nothing else names the session: seen in the log after 53-88 ms.
LOOKS, LOOK_SECONDS = 6, 0.06


class ClaudeCalls(Calls):
    """See `Calls`."""

    def session_id(self, call: ClientCall) -> str | None:
        tool_use = call.meta.get("claudecode/toolUseId")
        looks = 1 if call.environment.get(SESSION) else LOOKS
        return _session_with(tool_use, call.project, looks) if isinstance(tool_use, str) else None


def _session_with(tool_use: str, project: str | None, looks: int) -> str | None:
    """The session whose log's end has this tool call; Claude Code writes it a moment after it has asked."""
    if len(tool_use) < MIN_CALL_ID or project is None:
        return None
    from smart_fork.agents.claude.log import slug

    folder = HOME.folder() / "projects" / slug(project)
    for number in range(looks):
        if number:
            time.sleep(LOOK_SECONDS)
        needle = tool_use.encode("utf-8", "replace")
        if found := next((path for path in newest_logs(folder, "*.jsonl") if _ends_with(path, needle)), None):
            return found.stem
    return None


def _ends_with(path: Path, needle: bytes) -> bool:
    """Return whether one of the last lines of a log has this."""
    from indexer.transcripts.lines import last_lines

    with suppress(OSError):
        return any(needle in line for line in last_lines(path, TAIL_BYTES))
    return False
