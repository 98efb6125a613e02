"""Qwen Code's own folder: ``QWEN_HOME`` or ``~/.qwen``."""

from __future__ import annotations

from smart_fork.agents.agent import Home

HOME = Home("QWEN_HOME", ".qwen")
qwen_home = HOME.folder
#: The variable in which it tells its session to what it starts.
SESSION = "QWEN_CODE_SESSION_ID"
