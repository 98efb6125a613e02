"""Keeping copies of indexed logs, where that is wanted. One that cannot be made keeps no log out of the index."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from indexer import kept_logs
from indexer.failures import is_full
from indexer.store.base import Store
from indexer.transcripts.base import AgentAdapter, Agents, LogFile

log = logging.getLogger(__name__)


def keep_copy(file: LogFile, session_id: str, reader: AgentAdapter) -> None:
    """Bring the copy of this session's log, which `reader` reads, up to date."""
    try:
        _keep_one(file, session_id, reader)
    except OSError as error:
        log.warning("no copy is kept of %s: %s", file.path, error)


def _keep_one(file: LogFile, session_id: str, reader: AgentAdapter) -> bool:
    """Whether there was anything to do. A full disk is an `OSError`, because the next copy would not fit either."""
    if not kept_logs.wanted(reader):
        return False
    try:
        return kept_logs.keep(file, session_id, reader)
    except OSError as error:
        if is_full(error):
            raise
        log.warning("no copy is kept of %s: %s", file.path, error)
        return False


def make_room(store: Store) -> None:
    """Let go of the oldest copies where all together have become too large."""
    if not kept_logs.is_measuring_due():
        return
    try:
        kept_logs.make_room(store.forked())
    except OSError as error:
        log.warning("no kept copy could be removed: %s", error)


def keep_all(
    store: Store, agents: Agents, done: set[str], progress: Callable[[str, int, int], None] | None = None,
    deadline: float | None = None,
) -> bool:  # fmt: skip
    """Copies of all indexed logs that have none yet, the newest first, of those `agents` of which they are kept. One
    that is there costs a look at two files.

    For whoever holds the index's lock. Whether all was done before `deadline` (of `time.monotonic`): at least one is,
    and those in `done`, to which each is added, are not looked at again, so that it ends however slow the disk is.

    Raises:
        OSError: the disk is full.
    """
    kept = {agent.name for agent in agents if kept_logs.wanted(agent)}
    logs = [one for one in store.sources() if one[0] in kept] if kept else []
    left = [one for one in logs if one[2] not in done]
    for number, (agent, session_id, path) in enumerate(left):
        if number and deadline is not None and time.monotonic() >= deadline:
            return False
        if progress:
            progress("copying", len(logs) - len(left) + number, len(logs))
        done.add(path)
        file = agents[agent].log_at(path)
        if file and _keep_one(file, session_id, agents[agent]):
            make_room(store)
    return True
