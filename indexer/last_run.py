"""What is kept of a run of the indexer, and told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from indexer.unchecked import dicts_in
from indexer.values import Value, record, value

#: Counts that are told under the names that they have in a report.
COUNTED = ("read", "resumed", "bytes_read", "sessions", "removed", "embedded", "waiting")


@value
class FailedLog(Value):
    """A log that could not be read, and why."""

    path: str
    reason: str


@record
class LastRun(Value):
    """What is told of a run: of what it did only the counts, of the logs that could not be read the first."""

    started_at: str = ""
    seconds: float = 0.0
    outcome: str = ""
    error: str | None = None
    logs: int = 0
    read: int = 0
    resumed: int = 0
    bytes_read: int = 0
    sessions: int = 0
    removed: int = 0
    embedded: int = 0
    waiting: int = 0
    failed_logs: int = 0
    failed: tuple[FailedLog, ...] = ()

    @classmethod
    def kept(cls, told: Mapping[str, Any]) -> LastRun:
        """What was kept of one, whoever wrote it: what is missing, or is nothing of the kind, is as if nothing was."""
        logs = dicts_in(told.get("failed"))
        return cls(
            **{one.name: told[one.name] for one in fields(cls) if _is_such(told.get(one.name), one.default)},
            error=str(told["error"]) if told.get("error") else None,
            failed=tuple(FailedLog(str(one.get("path")), str(one.get("reason"))) for one in logs),
        )


def _is_such(value: object, default: object) -> bool:
    if isinstance(default, float):
        return isinstance(value, int | float)
    return isinstance(default, int | str) and isinstance(value, type(default))
