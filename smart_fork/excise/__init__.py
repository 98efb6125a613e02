"""Cut turns out of a transcript so that its agent can still resume it. See docs/how-to/excise.md."""

from typing import Any

from smart_fork.agents.facets import cutters
from smart_fork.cuts.model import Call, CutWarning, Place, Result, Tool
from smart_fork.cuts.model import Transcript as Session
from smart_fork.cuts.model import TranscriptTurn as Turn
from smart_fork.excise.loader import auto, load_auto, load_with_tool, sort_by_timestamp
from smart_fork.excise.plan import Plan, Refused, closure, excise, plan, verify
from smart_fork.excise.public import check, cut, rollback, suggest
from smart_fork.excise.replacement import write, writer_of
from smart_fork.excise.request import Request
from smart_fork.excise.trimmed_copy import branch

#: What is named after an agent: how its transcripts are read and written, and where they are.
_OF_AGENTS: dict[str, object] = {}
for _cutter in cutters():
    _writer = writer_of(_cutter.tool)
    _OF_AGENTS |= {_writer.__name__: _writer, **_cutter.public()}
globals().update(_OF_AGENTS)

__all__ = [
    "Call",
    "CutWarning",
    "Place",
    "Plan",
    "Refused",
    "Request",
    "Result",
    "Session",
    "Tool",
    "Turn",
    "auto",
    "branch",
    "check",
    "closure",
    "cut",
    "excise",
    "load_auto",
    "load_with_tool",
    "plan",
    "rollback",
    "sort_by_timestamp",
    "suggest",
    "verify",
    "write",
]
__all__ += list(_OF_AGENTS)


def __getattr__(name: str) -> Any:
    """Nothing more: it tells who checks types that there are names which the agents bring."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
