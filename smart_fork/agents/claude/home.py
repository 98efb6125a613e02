"""Claude Code's own folder: ``CLAUDE_CONFIG_DIR`` or ``~/.claude``."""

from __future__ import annotations

from smart_fork.agents.description import Home

HOME = Home("CLAUDE_CONFIG_DIR", ".claude")
#: In it programs that Claude Code starts find the id of its session.
SESSION = "CLAUDE_CODE_SESSION_ID"
claude_home = HOME.folder
