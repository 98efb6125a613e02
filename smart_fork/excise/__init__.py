"""Cut turns out of a transcript so that its agent can still resume it. See docs/excise.md."""

from smart_fork.agents.claude.loader import ClaudeLoader
from smart_fork.agents.codex.loader import CodexLoader
from smart_fork.agents.cursor.loader import CursorLoader, default_cursor_path
from smart_fork.cuts.model import Call, CutWarning, Place, Result, Session, Tool, Turn
from smart_fork.excise.branching import branch
from smart_fork.excise.checking import check
from smart_fork.excise.closure import closure, excise, verify
from smart_fork.excise.cutting import Request, cut
from smart_fork.excise.loading import auto, discover_newest_claude, load_auto, load_with_tool, sort_by_timestamp
from smart_fork.excise.plan import Plan, Refused, plan
from smart_fork.excise.suggesting import suggest
from smart_fork.excise.undoing import rollback
from smart_fork.excise.writing import ClaudeWriter, CodexWriter, CursorWriter, write

__all__ = [
    "Call",
    "ClaudeLoader",
    "ClaudeWriter",
    "CodexLoader",
    "CodexWriter",
    "CursorLoader",
    "CursorWriter",
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
    "default_cursor_path",
    "discover_newest_claude",
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
