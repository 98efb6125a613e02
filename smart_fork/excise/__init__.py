"""Cut turns out of a transcript so that its agent can still resume it. See docs/how-to/excise.md."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from indexer.values import Value
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts.model import Call, CutWarning, Place, Result, Tool
from smart_fork.agents.cuts.model import Transcript as Session
from smart_fork.agents.cuts.model import TranscriptTurn as Turn
from smart_fork.excise import request, soundness, suggestions, undo
from smart_fork.excise.answer import Request
from smart_fork.excise.plan import Plan, Refused, closure, excise, plan, verify
from smart_fork.excise.replacement import write, writer_of
from smart_fork.excise.transcript import auto, load_auto, load_with_tool, sort_by_timestamp
from smart_fork.excise.trimmed_copy import branch

P = ParamSpec("P")


def _as_json(answer: Callable[P, Value]) -> Callable[P, dict[str, Any]]:
    @wraps(answer)
    def told(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        return answer(*args, **kwargs).as_json()

    return told


#: For scripts: the same as the commands, answered with the JSON values that these print.
cut = _as_json(request.cut)
check = _as_json(soundness.check)
suggest = _as_json(suggestions.suggest)
rollback = _as_json(undo.rollback)

#: What is named after an agent: how its transcripts are read and written, and where they are.
_OF_AGENTS: dict[str, object] = {}
for _cutter in AGENTS.cutters():
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
