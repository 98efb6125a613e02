"""The names that scripts import from `smart_fork.excise`: functions that do what commands do, and return JSON values.

For each agent there are also a loader and a writer class, named after the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from indexer.json_values import Value
from indexer.safe_files import DISK, Disk
from smart_fork.agents import AGENTS
from smart_fork.agents.excision.transcript import Call, CutWarning, Result, Tool
from smart_fork.agents.excision.transcript import LinePlace as Place
from smart_fork.agents.excision.transcript import Transcript as Session
from smart_fork.agents.excision.transcript import TranscriptTurn as Turn
from smart_fork.errors import Usage
from smart_fork.excise import cutting, suggestions, verification
from smart_fork.excise.answer import CutRequest as Request
from smart_fork.excise.cut_plan import CutPlan, Refused, closure, excise, verify
from smart_fork.excise.cutting import branch
from smart_fork.excise.lookup import auto, load_auto, load_with_tool, sort_by_timestamp
from smart_fork.excise.writing import write_lines

Plan, plan = CutPlan, CutPlan.of
P = ParamSpec("P")


class Writer:
    """A class that writes the transcripts of one agent. Its subclasses are named after the agents."""

    tool: Tool = Session.UNKNOWN

    def write(self, session: Session, turns: Sequence[Turn], *, relink: bool = False, disk: Disk = DISK) -> Path:
        """Write the session's file with only these turns, in unchanged lines, and return its path.

        With `relink`, a turn without its parent gets another parent.

        Raises:
            Usage: the session is another agent's, or has no path.
            ForkRefused: the file has changed since it was read.
            OSError: nothing was written.
        """
        if session.tool != self.tool:
            raise Usage(f"{type(self).__name__} cannot write {session.tool} sessions")
        ids = {turn.id for turn in turns}
        gone = {position for position, turn in enumerate(session.turns) if turn.id not in ids}
        cut = {session.turns[position].id for position in gone}
        edits = AGENTS.cutter_of(self.tool).relinked(session.turns, cut) if relink else {}
        return write_lines(session, gone, edits, disk=disk)


def writer_of(tool: Tool) -> type[Writer]:
    """Return a `Writer` subclass for an agent, named after the agent."""
    return type(f"{type(AGENTS[tool]).__name__}Writer", (Writer,), {"tool": tool, "__doc__": Writer.__doc__})


def write(session: Session, turns: Sequence[Turn], *, relink: bool = False) -> Path:
    """Write the session's file with only these turns. With `relink`, turns without their parent get another parent."""
    writer = writer_of(session.tool) if session.tool in AGENTS.cuttable() else Writer
    return writer().write(session, turns, relink=relink)


def _as_json(answer: Callable[P, Value]) -> Callable[P, dict[str, Any]]:
    @wraps(answer)
    def told(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        return answer(*args, **kwargs).as_json()

    return told


cut = _as_json(cutting.cut)
check = _as_json(verification.check)
suggest = _as_json(suggestions.suggest)
rollback = _as_json(cutting.rollback)

#: The names for each agent that scripts can import, such as its writer class.
_OF_AGENTS: dict[str, object] = {}
for _cutter in AGENTS.cutters():
    _writer = writer_of(_cutter.tool)
    _OF_AGENTS |= {_writer.__name__: _writer, **_cutter.public()}
globals().update(_OF_AGENTS)

__all__ = [
    "Call", "CutWarning", "Place", "Plan", "Refused", "Request", "Result", "Session", "Tool", "Turn", "auto", "branch",
    "check", "closure", "cut", "excise", "load_auto", "load_with_tool", "plan", "rollback", "sort_by_timestamp",
    "suggest", "verify", "write",
]  # fmt: skip
__all__ += list(_OF_AGENTS)
