"""What became of runs of the indexer, for people and for the service's status (F-194)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from indexer.pipeline import Report

Outcome = Literal["completed", "failed", "cancelled", "skipped"]


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `report` is what it did up to its end, however that came about; `error` why it failed or was skipped."""

    started_at: str
    seconds: float
    outcome: Outcome
    report: Report
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """The run as JSON values; of what it did only the counts."""
        done = self.report
        return {
            "started_at": self.started_at,
            "seconds": round(self.seconds, 2),
            "outcome": self.outcome,
            "error": self.error or None,
            "logs": done.files,
            "read": done.read,
            "resumed": done.resumed,
            "bytes_read": done.bytes_read,
            "sessions": done.sessions,
            "removed": done.removed,
            "embedded": done.embedded,
            "waiting": done.waiting,
            "failed_logs": len(done.failed),
        }


@dataclass(frozen=True, slots=True)
class Freshness:
    """How indexing goes. `last_run` looked at everything, `last_change` at what was seen to change; `failing`
    says that the latest of them failed.
    """

    state: Literal["stopped", "idle", "indexing"]
    doing: str
    pending_logs: int
    last_run: Run | None
    last_change: Run | None
    failing: bool
    last_error: str
    last_error_at: str | None
    next_run: str | None

    def as_json(self) -> dict[str, Any]:
        """The state as JSON values."""
        return asdict(self) | {
            "last_run": self.last_run.as_json() if self.last_run else None,
            "last_change": self.last_change.as_json() if self.last_change else None,
            "last_error": self.last_error or None,
        }
