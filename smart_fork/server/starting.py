"""The tool that starts workers."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import WithJsonSchema

from smart_fork import answers
from smart_fork.server.calls import caller_of, in_thread, project_for
from smart_fork.single_flight import SingleFlight


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}


_WORKER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["project_path"],
    "properties": {
        "project_path": _text("The directory it works in."),
        "prompt": _text("What it is told to do; it knows nothing else, unless it forks or resumes a session."),
        "agent_type": {"enum": ["claude", "codex"], "description": "Left out: that of the session, or the caller's."},
        "name": _text("Its name, its window's and its worktree's."),
        "fork_from": _text("Fork this session: it knows all that the session knew, which stays as it is."),
        "at": {"type": "integer", "description": "With fork_from: only up to this message number of read_session."},
        "resume_session_id": _text("Go on in this session itself, in its own directory. Refused while it runs."),
        "continue_session": _flag("Go on in the newest session of project_path."),
        "fork_session": _flag("Fork what resume_session_id or continue_session means."),
        "worktree": {
            "type": ["boolean", "string"],
            "description": "A git worktree and branch of its own, or its name. Left out: one if possible.",
        },
        "run_in": {"enum": ["tmux", "process", "iterm2"], "description": "Left out: tmux if installed."},
        "skip_permissions": _flag("It never asks before it acts. Only if the user wants that."),
    },
}
#: Passed on as they are: what is wrong with them is said in our own words, for all of them before any is started.
Workers = Annotated[
    list[Any],
    WithJsonSchema(
        {"type": "array", "minItems": 1, "maxItems": 4, "items": _WORKER, "description": "One object a worker."}
    ),
]
#: Where free text is in a result. Ids and paths must stay as they are.
_WORDS = ("name", "command", "message", "hint")


class Starting:
    """The tool of this module, and what its calls share: a request that is repeated is answered once."""

    def __init__(self) -> None:
        self._flights: SingleFlight[Any] = SingleFlight()

    async def spawn_workers(self, ctx: Context[Any, Any], workers: Workers) -> answers.Spawned:
        """Start 1 to 4 agents that work on their own, side by side, each with a prompt.

        Use it for independent pieces of work; smart_fork finds sessions that already know how, for fork_from. All are
        checked before the first is started: after an error of the call, none was. Otherwise each has a result: where
        it runs (worker_id, session_id where it is known yet, worktree and branch to merge), or its error. It does not
        wait for their work. How many may run at once is limited.
        """
        caller = await caller_of(ctx)
        orders = [_in_project(order, caller) for order in workers]
        key = (caller, json.dumps(orders, sort_keys=True, default=str))
        agent = caller.agent or "claude"
        work = partial(_spawn, orders, caller_session_id=caller.session_id, default_agent=agent)
        return await in_thread(partial(self._flights.do, key, work, keep=_any_started))


def _in_project(order: Any, caller: Any) -> Any:
    """Relative directories are the caller's, not this server's."""
    path = order.get("project_path") if isinstance(order, dict) else None
    if not isinstance(path, str) or not path or path.startswith("~") or Path(path).is_absolute():
        return order
    return order | {"project_path": project_for(path, caller)}


def _spawn(orders: list[Any], **who: Any) -> Any:
    from smart_fork.forking.spawning import spawn, summary

    return summary([_shown(result) for result in spawn(orders, **who)])


def _any_started(answer: dict[str, Any]) -> bool:
    return bool(answer["started"])


def _shown(result: dict[str, Any]) -> dict[str, Any]:
    """A result without secrets and control characters in what a person or a worker has said."""
    from smart_fork.retrieval.results import title

    words = {key: title(result[key]) for key in _WORDS if key in result}
    warnings = [title(warning) for warning in result.get("warnings", ())]
    return result | words | ({"warnings": warnings} if "warnings" in result else {})
