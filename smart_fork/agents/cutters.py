"""Whose transcripts can be cut."""

from __future__ import annotations

from smart_fork.agents.claude.cut import ClaudeCutter
from smart_fork.agents.codex.cut import CodexCutter
from smart_fork.agents.cursor.cut import CursorCutter
from smart_fork.cuts.cutter import Cutter
from smart_fork.errors import Usage

#: Whose a transcript is, they are asked in this order (E-020).
CUTTERS: tuple[Cutter, ...] = (
    CursorCutter(),
    ClaudeCutter(),
    CodexCutter(),
)
TOOLS = tuple(one.tool for one in CUTTERS)


def find_cutter(tool: str) -> Cutter | None:
    """The cutter of that name; `None` for a transcript of which nobody knows whose it is."""
    return next((one for one in CUTTERS if one.tool == tool), None)


def cutter(tool: str) -> Cutter:
    """The cutter of that name.

    Raises:
        Usage: there is none.
    """
    if found := find_cutter(tool):
        return found
    raise Usage(f"Unknown tool: {tool}", f"Known: {', '.join(('auto', *TOOLS))}.")
