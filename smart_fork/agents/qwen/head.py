"""Whose forks sessions are: each record names the session and the message of which it is a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smart_fork.agents.ancestry import TreeHeads
from smart_fork.agents.qwen.fold import SAID
from smart_fork.agents.qwen.log import project_of


class QwenHeads(TreeHeads):
    """How logs of Qwen Code begin: its own forks as ours do."""

    said = SAID

    def names_a_copy(self, record: dict[str, Any]) -> bool:
        """See `TreeHeads.names_a_copy`."""
        return record.get("subtype") == "custom_title" and "forkedFrom" not in record

    def project(self, log: Path) -> Path:
        """See `TreeHeads.project`."""
        return project_of(log)
