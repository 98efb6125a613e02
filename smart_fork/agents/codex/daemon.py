"""Codex's background server, which runs the hooks of all terminals in the environment of the first one."""

from __future__ import annotations

from collections.abc import Sequence


def runs_hooks(runner: Sequence[str] | None) -> bool:
    """Return True if Codex's server ran the hook, judged by the words of its command."""
    return runner is None or "app-server" in runner
