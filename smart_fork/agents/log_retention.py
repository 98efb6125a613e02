"""Logs that agents delete when they next start, and the estimated size of copies of the logs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from indexer import kept_logs
from indexer.json_values import Value, value
from indexer.safe_files import open_regular
from indexer.transcripts.base import AgentAdapter, LogFile
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import OWN

#: Logs that will be deleted within this many days count as `soon`.
SOON_DAYS = 7.0
_DAY = 86_400.0
#: The number of logs, and the bytes of each, that are compressed to estimate the size of copies.
_SAMPLES, _SAMPLE_BYTES = 8, 1 << 20
#: The latest date that Python can represent.
_LATEST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


@value
class Deletion(Value):
    """The logs that one agent deletes when it starts, after `days` without a new record.

    Of its `logs` logs, with `bytes` bytes in all, the agent deletes `due` at its next start, and `soon` more within a
    week. The first log that is not yet due becomes so on the date `next`. `kept` is True if smart-fork keeps copies of
    the logs; else copies would take about `copy_bytes`.
    """

    agent: str
    days: float
    setting: str
    logs: int
    due: int
    soon: int
    next: str | None
    bytes: int
    kept: bool
    copy_bytes: int

    @classmethod
    def expected(cls, now: float, agents: Collection[AgentName] | None = None) -> tuple[Deletion, ...]:
        """Return the coming deletions of logs: one for each of `agents` that deletes old logs and has some."""
        readers = [reader for reader in OWN if agents is None or reader.name in agents]
        return tuple(found for reader in readers if (found := _of(reader, now)) is not None)

    def in_words(self) -> str:
        """Return the deletion as a sentence without a full stop."""
        goes = f"{self.due:,} of {self.logs:,} at its next start" if self.due else f"none of {self.logs:,} today"
        more = f", {self.soon:,} more within a week" if self.soon else ""
        first = f", the next by {self.next}" if self.next else ""
        return (
            f"{AGENTS.title_of(self.agent)} deletes logs after {self.days:g} days without a change: {goes}{more}{first}"
        )

    def room(self) -> str:
        """Return the estimated space for copies in words."""
        return f"about {max(1, round(self.copy_bytes / 1e6)):,} MB"


def _of(reader: AgentAdapter, now: float) -> Deletion | None:
    told = reader.retention()
    files = list(reader.discover()) if told else []
    if told is None or not files:
        return None
    going = sorted(file.mtime_ns / 1e9 + told.days * _DAY for file in files)
    later = [moment for moment in going if moment >= now]
    kept = kept_logs.copies_wanted(reader)
    return Deletion(
        agent=reader.name,
        days=told.days,
        setting=told.setting,
        logs=len(files),
        due=len(going) - len(later),
        soon=sum(moment < now + SOON_DAYS * _DAY for moment in later),
        next=_date(later[0]) if later else None,
        bytes=sum(file.size for file in files),
        kept=kept,
        copy_bytes=0 if kept else _copies(files),
    )


def _date(moment: float) -> str | None:
    return datetime.fromtimestamp(moment, UTC).astimezone().date().isoformat() if moment < _LATEST else None


def _copies(files: Sequence[LogFile]) -> int:
    """Estimate the bytes that copies of the logs would take, by compressing the beginnings of the largest logs."""
    read = made = 0
    for file in sorted(files, key=lambda file: -file.size)[:_SAMPLES]:
        try:
            length, compressed = _sampled(file.path)
        except OSError:
            continue
        read, made = read + length, made + compressed
    share = made / read if read else 1.0
    return min(round(sum(file.size for file in files) * share), kept_logs.room())


def _sampled(source: Path) -> tuple[int, int]:
    """Return the size of a log's beginning, and its size when compressed."""
    import zstandard  # few agents delete logs

    with open_regular(source) as file:
        data = file.read(_SAMPLE_BYTES)
    return len(data), len(zstandard.ZstdCompressor(level=kept_logs.LEVEL).compress(data))
