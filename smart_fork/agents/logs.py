"""Which of several logs of one session is the session, and which are copies of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from indexer.last_run import FailedLog
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.files import odd_files
from smart_fork.agents.facets import title_of
from smart_fork.registry.file import has_registry
from smart_fork.registry.workers import Registry
from smart_fork.system import permission
from smart_fork.text.snippets import printable


def logs_of(reader: AgentAdapter, session_id: str) -> list[Path]:
    """The logs of a session, the original before its copies, else the newest first; empty where there is none."""
    return originals_first(reader, session_id, reader.locate(session_id))


def original_of(reader: AgentAdapter, session_id: str) -> Path | None:
    """The log where the session was begun; where that is gone, the newest copy of it; `None` where there is none."""
    return next(iter(logs_of(reader, session_id)), None)


def originals_first(reader: AgentAdapter, session_id: str, paths: Sequence[Path]) -> list[Path]:
    """These logs of a session in the order of `logs_of`; they come newest first."""
    if len(paths) < 2:
        return list(paths)
    ours = staged_paths(session_id)
    return sorted(paths, key=lambda path: (str(path) in ours, _is_copy(reader, path)))


def changed_at(reader: AgentAdapter, path: Path) -> float:
    """When something was last added to a log, in seconds since the epoch.

    Raises:
        OSError: that cannot be told.
    """
    file = reader.log_at(str(path))
    return file.mtime_ns / 1e9 if file else path.stat().st_mtime


def staged_paths(session_id: str) -> Collection[str]:
    """The copies of a session that were made for forks."""
    if not has_registry():
        return ()
    with Registry() as registry:
        return {copy.path for copy in registry.staged_copies(session_id)}


def _is_copy(reader: AgentAdapter, path: Path) -> bool:
    try:
        return reader.is_copy(path)
    except OSError:
        return True


def unread(adapters: Iterable[AgentAdapter]) -> tuple[str, ...]:
    """Why no session of some of these agents can be read, a sentence for each."""
    return tuple(
        f"No session of {title_of(agent.name)} can be read: {why}" for agent in adapters if (why := agent.unread())
    )


def odd(adapters: Iterable[AgentAdapter]) -> tuple[FailedLog, ...]:
    """Find files that are named like logs of these agents and are none. A client limited to projects gets no paths."""
    return tuple(
        FailedLog(printable(path), why)
        for agent in (() if permission.limited() else adapters)
        for folder, depth in agent.folders()
        for path, why in odd_files(folder, agent.endings, depth)
    )
