"""Codex' server in the background, which runs the hooks of all its terminals with the environment of the first one."""

from __future__ import annotations

from collections.abc import Sequence


def runs_hooks(runner: Sequence[str] | None) -> bool:
    """Return True if that server ran the hook, judging by its command words."""
    return runner is None or "app-server" in runner
