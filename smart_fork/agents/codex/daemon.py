"""Codex's background server, which runs the hooks of all terminals in the environment of the first one."""

from __future__ import annotations

from collections.abc import Sequence


def runs_hooks(runner: Sequence[str] | None) -> bool:
    """Return True if `runner`, the command line of the process that ran a hook, is the command line of Codex's server.
    If `runner` is `None` (unknown), return True too.
    """
    return runner is None or "app-server" in runner
