"""Summaries of index runs, and the time of the next run, for people and for the service's status."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import orjson

from indexer.errors import what_failed
from indexer.json_values import Value, dict_in, dicts_in, json_in, record, value
from indexer.log_changes import Report

if TYPE_CHECKING:
    from indexer.store.sqlite import Store

#: Names of the counts that `LastRun` and `Report` have in common.
COUNT_FIELDS = ("read", "resumed", "bytes_read", "sessions", "removed", "embedded", "waiting")


@value
class FailedLog(Value):
    """A log that could not be read, and the reason."""

    path: str
    reason: str


@record
class LastRun(Value):
    """A summary of an index run: how many logs, sessions and chunks it handled, and some logs that were unreadable."""

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
        """Create a summary from the JSON object `told`. A value of a wrong type becomes the default."""
        logs = dicts_in(told.get("failed"))
        return cls(
            **{one.name: told[one.name] for one in fields(cls) if _is_such(told.get(one.name), one.default)},
            error=str(told["error"]) if told.get("error") else None,
            failed=tuple(FailedLog(str(one.get("path")), str(one.get("reason"))) for one in logs),
        )

    @classmethod
    def of(cls, store: Store) -> LastRun | None:
        """Return the summary of the last run over all logs; `None` before the first run."""
        told = dict_in(json_in(store.meta(_LAST)))
        return cls.kept(told) if told else None


def _is_such(value: object, default: object) -> bool:
    if isinstance(default, float):
        return isinstance(value, int | float)
    return isinstance(default, int | str) and isinstance(value, type(default))


#: Keys of the index's facts with the last run and the next run, which other processes read later.
_LAST, _NEXT = "last_run", "next_run"
#: Maximum number of unreadable logs that a summary names.
MAX_FAILED = 10

Outcome = Literal["completed", "failed", "cancelled", "skipped"]


def ended_run(started_at: str, seconds: float, outcome: Outcome, report: Report, error: str = "") -> LastRun:
    """Return the summary of an index run. `report` counts its work, and `error` says why it failed or was skipped."""
    return LastRun(
        started_at=started_at, seconds=round(seconds, 2), outcome=outcome, error=error or None, logs=report.files,
        **{name: getattr(report, name) for name in COUNT_FIELDS}, failed_logs=len(report.failed),
        failed=tuple(FailedLog(path, reason) for path, reason in islice(report.failed.items(), MAX_FAILED)),
    )  # fmt: skip


@value
class Freshness(Value):
    """The state of the background indexer. `last_run` covered all logs, and `last_change` only changed ones."""

    state: Literal["stopped", "idle", "indexing"]
    doing: str
    pending_logs: int
    last_run: LastRun | None
    last_change: LastRun | None
    failing: bool
    last_error: str | None
    last_error_at: str | None
    next_run: str | None


def keep_run(store: Store, run: LastRun) -> None:
    """Store the summary of a run over all logs in the index."""
    store.set_meta(_LAST, orjson.dumps(run.as_json()).decode())


@contextmanager
def recording_run(store: Store, report: Report, unless: type[Exception]) -> Iterator[None]:
    """Store a summary of the index run in this block, with the counts in `report`; nothing after an `unless` error."""
    started, began = json_time(datetime.now(UTC)), time.monotonic()
    try:
        yield
    except unless:
        raise
    except Exception as error:
        problem = what_failed(error)
        with suppress(Exception):  # what went wrong is what matters
            keep_run(store, ended_run(started, time.monotonic() - began, "failed", report, problem))
        raise
    keep_run(store, ended_run(started, time.monotonic() - began, "completed", report))


def announce(store: Store, next_run: str | None) -> None:
    """Store the time of this process's `next_run` (`None`: never) in the index. It counts while this process lives."""
    pid = os.getpid()
    store.set_meta(_NEXT, orjson.dumps({"at": next_run, "pid": pid, "born": start_time(pid)}).decode())


def next_run(store: Store, now: datetime) -> str | None:
    """Return the time of the next run of a live process; `None` if no process indexes by schedule."""
    told = dict_in(json_in(store.meta(_NEXT)))
    at, pid = told.get("at"), told.get("pid")
    lives = isinstance(pid, int) and (since := start_time(pid)) is not None and since == told.get("born")
    return at if lives and isinstance(at, str) and at > json_time(now) else None


def json_time(when: datetime) -> str:
    """Return a time as in all JSON of smart-fork: ISO 8601 in UTC with milliseconds."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def start_time(pid: int) -> float | None:
    """Return when a process started, in seconds since 1970, to detect a reused process id; `None` if unknown."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, ValueError):  # none, or no number of one
        return None
