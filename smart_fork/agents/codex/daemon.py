"""Codex' server in the background, which runs the hooks of all its terminals with the environment of the first one."""

from __future__ import annotations

from collections.abc import Sequence


def runs_hooks(runner: Sequence[str] | None) -> bool:
    """Whether it is that server that has run a hook, as far as the words of its command are known."""
    return runner is None or "app-server" in runner
