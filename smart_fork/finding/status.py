"""Content of the index, for people and for ``index_status``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime

import orjson

from indexer.changes import Report, unread_logs
from indexer.files import index_db, index_root
from indexer.runs import LastRun, next_run
from indexer.store.base import SeenFile
from indexer.store.sqlite import SqliteStore
from smart_fork.agents.readers import READERS
from smart_fork.finding.answer import BrokenLog, Held, Indexed, IndexStatus
from smart_fork.finding.index_access import opened
from smart_fork.finding.recent import passed_over
from smart_fork.finding.upkeep import covered
from smart_fork.snippets import printable


def index_status() -> IndexStatus:
    """Counts, freshness and what could not be read. Makes an empty index where there is none; reads no log.

    Raises:
        IndexUnavailable: it cannot be opened, or is damaged.
    """
    with opened() as store:
        counts = store.counts()
        unread = len(unread_logs(store, READERS))
        return IndexStatus(
            index=str(index_db()), exports=str(index_root()), bytes=index_db().stat().st_size,
            model=store.meta("model") or None, logs=counts.files, unread_logs=unread, sessions=counts.sessions,
            chunks=counts.chunks, embedded=counts.embedded, covered=covered(store, counts),
            complete=not unread and counts.embedded == counts.chunks, updated_at=counts.updated_at or None,
            last_run=LastRun.of(store), next_run=next_run(store, datetime.now(UTC)), skipped=counts.skipped,
            erased=not store.owes_erasing(), broken_lines=counts.broken_lines,
            broken_logs=_broken_logs(store.broken_logs()), passed_over=passed_over(store),
        )  # fmt: skip


def indexed(store: SqliteStore, report: Report, before: Mapping[str, SeenFile], engine: str) -> Indexed:
    """Summarize a run that read the changes since `before`, and the content of the index. The time is added later."""
    counts = store.counts()
    read = {path for path, _ in store.seen().items() - before.items()}
    broken = [row for row in store.broken_logs() if row[0] in read] if report.broken_lines else []
    return Indexed(
        **asdict(report), index=Held(**asdict(counts), covered=covered(store, counts)), engine=engine,
        broken_logs=_broken_logs(broken), passed_over=passed_over(store),
    )  # fmt: skip


def _broken_logs(rows: list[tuple[str, int, str]]) -> tuple[BrokenLog, ...]:
    """Logs with lines that could not be decoded, with the first of these."""
    return tuple(
        BrokenLog(path, number, tuple((line, printable(reason)) for line, reason in orjson.loads(first)[:3]))
        for path, number, first in rows
    )
