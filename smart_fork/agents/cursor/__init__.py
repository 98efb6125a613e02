"""The agent Cursor (see `Agent`): its agent's sessions can be read, and its editor's conversations can be cut."""

from __future__ import annotations

from types import MappingProxyType

from smart_fork.agents.agent import Agent, ReadOnlyAgent
from smart_fork.agents.description import Home


class Cursor(Agent):
    """The description of Cursor, which smart-fork does not start."""

    name = "cursor"
    title = "Cursor"
    writes_on = False
    home = Home("CURSOR_DATA_DIR", ".cursor")
    lacks = MappingProxyType({
        ability: why for ability, why in ReadOnlyAgent.lacks.items() if ability != "cut"
    })  # fmt: skip
    facets = MappingProxyType({
        "reader": "log_files:CursorAdapter", "codec": "log_files:CursorCodec", "cutter": "excision:CursorCutter",
    })  # fmt: skip
