"""Tells a session's original log from its copies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from indexer.last_run import FailedLog
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.files import odd_files
from smart_fork.agents.facets import title_of
from smart_fork.registry.file import has_registry
from smart_fork.system import permission
from smart_fork.text.snippets import printable


def logs_of(reader: AgentAdapter, session_id: str) -> list[Path]:
    """Return a session's logs: the original first, then copies, newest first; empty if there are none."""
    return originals_first(reader, session_id, reader.locate(session_id))


def original_of(reader: AgentAdapter, session_id: str) -> Path | None:
    """Return the log in which the session began, else its newest copy, else `None`."""
    return next(iter(logs_of(reader, session_id)), None)


def originals_first(reader: AgentAdapter, session_id: str, paths: Sequence[Path]) -> list[Path]:
    """Sort a session's logs, given newest first, in the order of `logs_of`."""
    if len(paths) < 2:
        return list(paths)
    ours = staged_paths(session_id)
    return sorted(paths, key=lambda path: (str(path) in ours, _is_copy(reader, path)))


def changed_at(reader: AgentAdapter, path: Path) -> float:
    """Return the time of a log's last record in seconds since the epoch.

    Raises:
        OSError: The log cannot be read.
    """
    file = reader.log_at(str(path))
    return file.mtime_ns / 1e9 if file else path.stat().st_mtime


def staged_paths(session_id: str) -> Collection[str]:
    """Return the copies of a session that were made for forks."""
    if not has_registry():
        return ()
    from smart_fork.registry.workers import Registry

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
        f"No session of {title_of(agent.name)} can be read: {why}" for agent in adapters if (why := agent.unread())
    )


def odd(adapters: Iterable[AgentAdapter]) -> tuple[FailedLog, ...]:
    """Find files with the names of logs that are not logs. A client limited to projects gets no paths."""
    return tuple(
        FailedLog(printable(path), why)
        for agent in (() if permission.limited() else adapters)
        for folder, depth in agent.folders()
        for path, why in odd_files(folder, agent.endings, depth)
    )
