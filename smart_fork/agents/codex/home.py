"""Codex's own folder: ``CODEX_HOME`` or ``~/.codex``."""

from __future__ import annotations

from smart_fork.agents.description import Home

HOME = Home("CODEX_HOME", ".codex", ("sessions", "archived_sessions"))
codex_home = HOME.folder
