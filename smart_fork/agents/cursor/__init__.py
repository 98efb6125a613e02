"""Cursor: its conversations are cut, and not found or forked."""

from __future__ import annotations

from types import MappingProxyType

from smart_fork.agents.agent import Agent


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
    facets = MappingProxyType({"cutter": "cut:CursorCutter"})
