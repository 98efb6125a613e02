"""Qwen Code's hooks, in its ``settings.json``: events, values and answers are those of Claude Code."""

from __future__ import annotations

from smart_fork.agents.hooks import Hooks


class QwenHooks(Hooks):
    """See `Hooks`."""

    begun = ('"role":"model"', '"forkedFrom":')
    #: npm's script, what that begins with more memory, and what does the work.
    processes = 3
    events = ("SessionStart", "UserPromptSubmit", "Notification", "Stop", "SessionEnd")
