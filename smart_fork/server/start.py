"""The tool that starts workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import WithJsonSchema

from smart_fork.agents.options import KEYS
from smart_fork.agents.selection import first, startable
from smart_fork.caller import Caller
from smart_fork.forking.started import NotSpawned, Spawned, SpawnedWorker
from smart_fork.server.calls import project_for
from smart_fork.server.progress import Progress, progress_of
from smart_fork.system.single_flight import SingleFlight

if TYPE_CHECKING:
    from smart_fork.retrieval.upkeep import Engine


def _worker_schema() -> dict[str, Any]:
    shown = {key: said.schema() for key, said in KEYS.items()}
    shown["agent_type"] = {"enum": [*startable()], "description": shown["agent_type"]["description"]}
    return {"type": "object", "additionalProperties": False, "required": ["project_path"], "properties": shown}


#: Passed on as they are: what is wrong with them is said in our own words, for all of them before any is started.
Workers = Annotated[
    list[Any],
    WithJsonSchema(
        {
            "type": "array",
            "minItems": 1,
            "maxItems": 4,
            "items": _worker_schema(),
            "description": "One object a worker.",
        }
    ),
]


class Starting:
    """The tool of this module, and what its calls share: a request that is repeated is answered once."""

    def __init__(self, engine: Callable[[Progress], Engine]) -> None:
        self._engine = engine
        self._flights: SingleFlight[Spawned] = SingleFlight()

    def spawn_workers(self, caller: Caller, workers: Workers) -> Spawned:
        """Start 1 to 4 agents that work on their own, side by side, each with a prompt.

        Use it for independent pieces of work; smart_fork finds sessions that already know how, for fork_from. All are
        checked before the first is started: after an error of the call, none was. Otherwise each has a result: where
        it runs (worker_id, session_id where it is known yet, worktree and branch to merge), or its error. It does not
        wait for their work. How many may run at once is limited.
        """
        orders = [_in_project(order, caller) for order in workers]
        key = (caller, json.dumps(orders, sort_keys=True, default=str))
        return self._flights.do(key, partial(self._spawn, orders, caller), keep=_any_started)

    def _spawn(self, orders: list[Any], caller: Caller) -> Spawned:
        from smart_fork.forking.spawn import is_not_started, spawn, summary
        from smart_fork.team.workers import started

        engine = partial(self._engine, progress_of())
        start = partial(
            spawn, caller_session_id=caller.session_id, default_agent=caller.agent or first(), engine=engine
        )
        return summary([_shown(result) for result in started(orders, start, is_not_started)])


def _in_project(order: Any, caller: Caller) -> Any:
    """Relative directories are the caller's, not this server's."""
    path = order.get("project_path") if isinstance(order, dict) else None
    if not isinstance(path, str) or not path or path.startswith("~") or Path(path).is_absolute():
        return order
    return order | {"project_path": project_for(path, caller)}


def _any_started(answer: Spawned) -> bool:
    return bool(answer.started)


def _shown(result: SpawnedWorker | NotSpawned) -> SpawnedWorker | NotSpawned:
    """A result without secrets and control characters in what a person or a worker has said.

    Ids and paths must stay as they are.
    """
    from smart_fork.retrieval.results import title

    if isinstance(result, NotSpawned):
        return replace(result, message=title(result.message), hint=title(result.hint))
    warnings = tuple(title(warning) for warning in result.warnings)
    return replace(result, name=title(result.name), command=title(result.command), warnings=warnings)
