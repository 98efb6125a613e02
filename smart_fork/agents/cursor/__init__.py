"""Cursor: its conversations are cut, and not found or forked."""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from smart_fork.agents.agent import Agent

if TYPE_CHECKING:
    from smart_fork.agents.cursor.cut import CursorCutter


class Cursor(Agent):
    """See `Agent`."""

    name = "cursor"
    title = "Cursor"
    lacks = MappingProxyType(
        dict.fromkeys(
            ("found", "started", "branched", "budgeted", "told", "shared", "tells", "set_up"),
            "smart-fork does not know how Cursor resumes a session",
        )
    )

    @cached_property
    def cutter(self) -> CursorCutter:
        """See `Agent.cutter`."""
        from smart_fork.agents.cursor.cut import CursorCutter

        return CursorCutter()
