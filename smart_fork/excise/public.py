"""What scripts call: the same as the commands, answered with the JSON values that these print."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from indexer.values import Value
from smart_fork.excise import request, soundness, suggestions, undo

P = ParamSpec("P")


def _as_json(answer: Callable[P, Value]) -> Callable[P, dict[str, Any]]:
    @wraps(answer)
    def told(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        return answer(*args, **kwargs).as_json()

    return told


cut = _as_json(request.cut)
check = _as_json(soundness.check)
suggest = _as_json(suggestions.suggest)
rollback = _as_json(undo.rollback)
