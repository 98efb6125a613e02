"""The agent Cursor. smart-fork reads the sessions of Cursor's agent, and can cut the conversations in the editor's
database.
"""

from __future__ import annotations

from types import MappingProxyType

from smart_fork.agents.agent import Agent, ReadOnlyAgent
from smart_fork.agents.description import Home


class Cursor(Agent):
    """The description of Cursor as an agent: its names, its folder, and the modules of its parts (reader, decoder,
    cutter). smart-fork does not start Cursor.
    """

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
