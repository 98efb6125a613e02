"""Workers, several forks and branches that begin from sessions of the team: these are written here first, and taken
away again where what was begun with them has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from smart_fork.errors import NotFound, SmartForkError
from smart_fork.team import login

R = TypeVar("R")
#: What names the session that a worker forks.
_FROM = "fork_from"


class _Failed(Exception):
    """What was begun with a session has failed."""


def started(
    orders: Sequence[Any], start: Callable[[list[Any]], Sequence[R]], failed: Callable[[R], bool]
) -> Sequence[R]:
    """What became of each worker that was asked for; whose start has `failed` leaves no copy of the team's.

    Raises:
        SmartForkError: one of them cannot be had; then none was started, and no copy stays.
    """
    if not login.is_known():
        return start(list(orders))
    with ExitStack() as all_:
        meant, held = [], []
        for order in orders:
            held.append(all_.enter_context(ExitStack()))
            meant.append(_meant(order, held[-1]))
        done = start(meant)
        for one, stack in zip(done, held, strict=True):
            if failed(one):
                error = _Failed()
                with suppress(_Failed):
                    stack.__exit__(_Failed, error, None)
        return done


def is_shared(reference: str) -> bool:
    """Whether somebody means a session of the team by that."""
    if not login.is_known():
        return False
    from smart_fork.team.project import opened

    with suppress(SmartForkError), opened() as where, suppress(NotFound):
        where.found(reference)
        return True
    return False


def _meant(order: Any, held: ExitStack) -> Any:
    """An order for the session as it is here. What is no order is refused by who starts it."""
    reference = order.get(_FROM) if isinstance(order, dict) else None
    if not isinstance(reference, str) or not reference:
        return order
    from smart_fork.team.find import fetched

    path = Path(str(order.get("project_path") or "")).expanduser()
    here = held.enter_context(fetched(reference, directory=path if path.is_dir() else None))
    return {**order, _FROM: here.session_id}
