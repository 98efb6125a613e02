"""Which of several logs of a session counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from indexer.runs import FailedLog
from indexer.transcripts.base import AgentAdapter, LogFile, odd_files
from indexer.transcripts.state import utc
from smart_fork.agents import AGENTS
from smart_fork.snippets import printable
from smart_fork.system import permission
from smart_fork.workers.registry_file import has_registry


def logs_of(reader: AgentAdapter, session_id: str) -> list[Path]:
    """Return a session's logs in the order of `longest_first`; empty if there are none."""
    return longest_first(reader, session_id, reader.locate(session_id))


def original_of(reader: AgentAdapter, session_id: str) -> Path | None:
    """Return the log with the longest history; `None` if there is none."""
    return next(iter(logs_of(reader, session_id)), None)


def longest_first(reader: AgentAdapter, session_id: str, paths: Sequence[Path]) -> list[Path]:
    """Sort a session's logs, given newest first: the one that goes furthest, and of those the one where it began."""
    if len(paths) < 2:
        return list(paths)
    ours = staged_paths(session_id)
    last = {path: ((file := reader.log_at(str(path))) and _said_at(reader, file)) or "" for path in paths}
    found = sorted(paths, key=lambda path: (str(path) in ours, _is_copy(reader, path)))
    return sorted(found, key=last.__getitem__, reverse=True)


def worked_at(reader: AgentAdapter, file: LogFile) -> str:
    """Return when a session was last worked on. A log that does not say it was so when it was written to.

    A file that keeps many sessions says it of each.
    """
    return ("" if file.within else _said_at(reader, file)) or utc(file.mtime_ns / 1e9)


def _said_at(reader: AgentAdapter, file: LogFile) -> str:
    """Return when anything was last said or done in a log; empty if it does not say, or cannot be read."""
    with suppress(Exception):  # what is wrong with a log is told where it is read
        return reader.time_of(file)
    return ""


def newest_log(reader: AgentAdapter) -> Path | None:
    """Return the log of the session that was last worked on; `None` if there are none."""
    newest = max(reader.discover(), key=lambda file: (worked_at(reader, file), file.mtime_ns), default=None)
    return newest and newest.path


def changed_at(reader: AgentAdapter, path: Path) -> float:
    """Return the time at which a log was last written to, in seconds since the epoch.

    Raises:
        OSError: The log cannot be read.
    """
    file = reader.log_at(str(path))
    return file.mtime_ns / 1e9 if file else path.stat().st_mtime


def staged_paths(session_id: str) -> Collection[str]:
    """Return the copies of a session that were made for forks."""
    if not has_registry():
        return ()
    from smart_fork.workers.registry import Registry

    with Registry() as registry:
        return {copy.path for copy in registry.staged_copies(session_id)}


def _is_copy(reader: AgentAdapter, path: Path) -> bool:
    try:
        return reader.is_copy(path)
    except OSError:
        return True


def unread(adapters: Iterable[AgentAdapter]) -> tuple[str, ...]:
    """Return a sentence for each of these agents whose sessions cannot be read."""
    return tuple(
        f"No session of {AGENTS.title_of(agent.name)} can be read: {why}"
        for agent in adapters
        if (why := agent.unread())
    )


def odd(adapters: Iterable[AgentAdapter]) -> tuple[FailedLog, ...]:
    """Find files with the names of logs that are not logs. A client limited to projects gets no paths."""
    return tuple(
        FailedLog(printable(path), why)
        for agent in (() if permission.limited() else adapters)
        for folder, depth in agent.folders()
        for path, why in odd_files(folder, agent.endings, depth)
    )
