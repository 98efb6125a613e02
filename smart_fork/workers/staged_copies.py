"""The copies of transcripts that were staged into a worktree: they go with it, and what is only in them stays."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from indexer.files import remove
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.files import is_part_of
from smart_fork.agents.logs import logs_of, staged_paths
from smart_fork.registry.workers import Registry


def remove_copies(worktrees: Iterable[Path], registry: Registry) -> tuple[list[Path], list[str]]:
    """Take away the copies that were staged for these worktrees, which are gone: which, and why others are kept.

    An original is none of them, and a copy that has turns of its own, or is all that is left of its session, stays.
    """
    storages = [(agent.name, agent.storage) for agent in AGENTS if agent.storage]
    agents = {folder: name for one in worktrees for name, storage in storages if (folder := storage.folder(one))}
    removed: list[Path] = []
    kept: list[str] = []
    for copy in registry.staged_copies():
        path = Path(copy.path)
        if path.parent not in agents:
            continue
        reason = _why_kept(agents[path.parent], path, copy.session_id) if path.is_file() else ""
        if reason:
            kept.append(f"{path} is kept: {reason}")
            continue
        if path.is_file():
            removed.append(path)
        _remove(path, copy.session_id)
        registry.forget_staged_copy(path)
    return removed, kept


def _why_kept(agent: AgentName, path: Path, session_id: str) -> str:
    """Why a copy must stay; empty where all of it is in the original as well."""
    ours = staged_paths(session_id)
    original = next((one for one in logs_of(READERS[agent], session_id) if str(one) not in ours), None)
    if original is None:
        return "it is the last copy of this session"
    try:
        if more := len(_turns(path) - _turns(original)):
            return f"the session continued in it, {more} records are only there"
    except OSError as error:
        return f"it cannot be compared with {original}: {error}"
    beside = path.with_suffix("")
    if beside.is_dir() and not is_part_of(beside, original.with_suffix("")):
        return f"{beside} contains files that the original does not have"
    return ""


def _turns(path: Path) -> set[str]:
    named = (line.record.get("uuid") for line in LineReader(path))
    return {one for one in named if isinstance(one, str)}


def _remove(path: Path, session_id: str) -> None:
    """The log first, so that it never stands without what is beside it; the folder where nothing else is in it."""
    remove(path)
    beside = path.with_suffix("")
    if beside.name == session_id and not beside.is_symlink():
        remove(beside)
    with suppress(OSError):
        path.parent.rmdir()
