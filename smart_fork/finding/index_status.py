"""Describes the content, freshness and completeness of the index, for ``smart-fork index status``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from indexer.json_values import Value, record
from indexer.runs import FailedLog, LastRun, next_run
from indexer.safe_files import index_db, index_root
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import ago, minute, printable
from smart_fork.finding.answer import EmbeddedShares
from smart_fork.finding.index_access import opened
from smart_fork.finding.index_refresh import BrokenLog, broken_logs_of, embedded_shares, unread_logs
from smart_fork.finding.recent import passed_over


@record
class IndexStatus(Value):
    """The content, freshness and completeness of the index, as ``smart-fork index status`` prints them."""

    index: str
    exports: str
    bytes: int
    model: str | None
    logs: int
    unread_logs: int
    sessions: int
    chunks: int
    embedded: int
    covered: EmbeddedShares
    complete: bool
    updated_at: str | None
    last_run: LastRun | None
    next_run: str | None
    skipped: Mapping[str, int]
    erased: bool
    broken_lines: int
    broken_logs: tuple[BrokenLog, ...]
    passed_over: tuple[FailedLog, ...]

    def last_run_in_words(self) -> str:
        """Describe the last index run in a line: time, result, read logs, embedded passages, failures."""
        if (run := self.last_run) is None:
            return "none yet"
        did = f"{run.read} of {run.logs} logs read, {run.embedded} passages embedded"
        failed = f", {run.failed_logs} logs could not be read" if run.failed_logs else ""
        why = f": {printable(run.error)}" if run.error else ""
        return f"{ago(run.started_at)}, {run.outcome} after {run.seconds:.0f} s{why}; {did}{failed}"

    def next_run_in_words(self) -> str:
        """Return the time of the next index update in words."""
        return f"at {minute(self.next_run)}" if self.next_run else "with the next search"


def index_status() -> IndexStatus:
    """Return the state of the index. A missing index is created; no log is read."""
    with opened() as store:
        counts = store.counts()
        unread = len(unread_logs(store, READERS))
        return IndexStatus(
            index=str(index_db()), exports=str(index_root()), bytes=index_db().stat().st_size,
            model=store.meta("model") or None, logs=counts.files, unread_logs=unread, sessions=counts.sessions,
            chunks=counts.chunks, embedded=counts.embedded, covered=embedded_shares(store, counts),
            complete=not unread and counts.embedded == counts.chunks, updated_at=counts.updated_at or None,
            last_run=LastRun.of(store), next_run=next_run(store, datetime.now(UTC)), skipped=counts.skipped,
            erased=not store.owes_erasing(), broken_lines=counts.broken_lines,
            broken_logs=broken_logs_of(store.broken_logs()), passed_over=passed_over(store),
        )  # fmt: skip
