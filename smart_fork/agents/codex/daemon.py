"""Codex's background server. It runs the hooks of all terminals, in the environment of the first one."""

from __future__ import annotations

from collections.abc import Sequence


def runs_hooks(runner: Sequence[str] | None) -> bool:
    """Return True if `runner`, the command line of a hook's parent, is Codex's server, or unknown (`None`)."""
    return runner is None or "app-server" in runner
