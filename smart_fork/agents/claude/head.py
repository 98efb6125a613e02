"""Whose forks sessions of Claude Code are: its own say nothing, but copy the records of their parent with their ids."""

from __future__ import annotations

from typing import Any

from smart_fork.agents.ancestry import TreeHeads


class ClaudeHeads(TreeHeads):
    """How logs of Claude Code begin."""

    #: What is written at the top of a new file.
    native = ("mode", "permission-mode", "queue-operation", "custom-title")

    def names_a_copy(self, record: dict[str, Any]) -> bool:
        """See `TreeHeads.names_a_copy`."""
        return record.get("type") == "custom-title"
