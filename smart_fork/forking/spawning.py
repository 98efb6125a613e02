"""Up to four workers at once: all are checked before the first starts, and each has a result of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from indexer.transcripts.model import Agent
from smart_fork.advice import advice
from smart_fork.errors import SmartForkError, Usage
from smart_fork.forking.confirmation import CONFIRM_SECONDS, Clock, SystemClock, World, world_of
from smart_fork.forking.orders import Order
from smart_fork.forking.report import as_worker
from smart_fork.forking.starting import Prepared, launch, prepare
from smart_fork.processes import Processes

MAX_WORKERS = 4
#: How long each is looked at, however long the ones before it took: one that dies at once is to be noticed.
LEAST_SECONDS = 5.0
#: These read on behind the number: "Worker 0 missing required 'project_path'".
_READ_ON = ("missing required", "must be")


def spawn(
    workers: Sequence[Any],
    *,
    caller_session_id: str | None = None,
    default_agent: Agent = "claude",
    processes: Processes | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> list[dict[str, Any]]:
    """Start 1 to 4 workers, each described by the keys of `orders.KEYS`.

    The result of each is its ``index`` with either what `StartedWorker` says, or ``error``, ``message`` and ``hint``.
    All together are waited for hardly longer than one fork is.

    Raises:
        SmartForkError: one of them cannot be had; then none was started (F-116).
    """
    if not workers:
        raise Usage("At least one worker is required", "Say of each its project_path and its prompt.")
    if len(workers) > MAX_WORKERS:
        raise Usage(f"Maximum {MAX_WORKERS} workers per spawn", "Call again for more.")
    time = clock or SystemClock()
    ready = []
    for index, said in enumerate(workers):
        try:
            order = Order(said, default_agent, caller_session_id)
            world = world_of(order.agent, processes, env, time)
            ready.append((prepare(order.wanted(world), world), world, order.notes))
        except SmartForkError as error:
            colon = "" if error.message.startswith(_READ_ON) else ":"
            raise type(error)(f"Worker {index}{colon} {error.message}", error.hint) from error
    deadline = time.now() + CONFIRM_SECONDS
    return [{"index": index, **_result(*one, deadline)} for index, one in enumerate(ready)]


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The results, and how many workers run now."""
    failed = sum("error" in one for one in results)
    return {"started": len(results) - failed, "failed": failed, "workers": results}


def _result(prepared: Prepared, world: World, notes: Sequence[str], deadline: float) -> dict[str, Any]:
    """One that fails does not keep the others from starting."""
    try:
        launched = launch(prepared, world, patience=max(LEAST_SECONDS, deadline - world.clock.now()))
    except SmartForkError as error:
        return {"error": _code(error), "message": error.message, "hint": error.hint}
    except (OSError, apsw.Error) as error:
        text = f"{type(error).__name__}: {error}"
        return {
            "error": "unexpected",
            "message": text,
            "hint": advice("`smart-fork doctor` checks every part.", tool="Start the others without it."),
        }
    answer = as_worker(launched).as_json()
    return answer | {"warnings": [*notes, *answer["warnings"]]}


def _code(error: SmartForkError) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
