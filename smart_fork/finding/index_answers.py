"""What questions about the index are answered with, as the command line, MCP and scripts get it: values."""

from __future__ import annotations

from collections.abc import Mapping

from indexer.last_run import FailedLog, LastRun
from indexer.values import Value, record, value
from smart_fork.finding.answer import Covered


@value
class BrokenLog(Value):
    """A log with lines that could not be decoded; `first` are some of them as ``[line, reason]``."""

    path: str
    lines: int
    first: tuple[tuple[int | str, ...], ...]


@record
class IndexStatus(Value):
    """What the index holds, how fresh and complete it is."""

    index: str
    exports: str
    bytes: int
    model: str | None
    logs: int
    unread_logs: int
    sessions: int
    chunks: int
    embedded: int
    covered: Covered
    complete: bool
    updated_at: str | None
    last_run: LastRun | None
    next_run: str | None
    skipped: Mapping[str, int]
    erased: bool
    broken_lines: int
    broken_logs: tuple[BrokenLog, ...]
    passed_over: tuple[FailedLog, ...]


@record
class Held(Value):
    """What the index holds after a run."""

    sessions: int
    chunks: int
    embedded: int
    files: int
    skipped: Mapping[str, int]
    broken_lines: int
    updated_at: str
    covered: Covered


@record
class Indexed(Value):
    """What a run over everything did, as `indexer.changes.Report` has it, and what the index holds now."""

    files: int
    unchanged: int
    read: int
    resumed: int
    sessions: int
    skipped: Mapping[str, int]
    failed: Mapping[str, str]
    broken_lines: int
    bytes_read: int
    exported: int
    removed: int
    embedded: int
    waiting: int
    erased: bool
    seconds: Mapping[str, float]
    total_seconds: float
    index: Held
    engine: str
    broken_logs: tuple[BrokenLog, ...]
    passed_over: tuple[FailedLog, ...]


@value
class NoIndex(Value):
    """The answer where the index cannot be used, and what to do."""

    error: str
    message: str
    next_steps: tuple[str, ...]
