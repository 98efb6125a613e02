"""Cursor: its agent's sessions are read, and conversations in its database can be cut."""

from __future__ import annotations

from types import MappingProxyType

from smart_fork.agents.agent import Agent, Home, ReadOnlyAgent


class Cursor(Agent):
    """The agent Cursor: its names and folder, and the places of its facets. smart-fork does not start it."""

    name = "cursor"
    title = "Cursor"
    writes_on = False
    home = Home("CURSOR_DATA_DIR", ".cursor")
    lacks = MappingProxyType({
        ability: why for ability, why in ReadOnlyAgent.lacks.items() if ability != "cut"
    })  # fmt: skip
    facets = MappingProxyType({
        "reader": "log:CursorAdapter", "codec": "log:CursorCodec", "cutter": "cut:CursorCutter",
    })  # fmt: skip
