"""Keeping copies of indexed logs, where that is wanted. One that cannot be made keeps no log out of the index."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from indexer import kept
from indexer.failures import is_full
from indexer.store.base import Store
from indexer.transcripts.agents import adapter
from indexer.transcripts.base import LogFile

log = logging.getLogger(__name__)


def keep_copy(file: LogFile, session_id: str) -> None:
    """Bring the copy of this session's log up to date."""
    try:
        _keep_one(file, session_id)
    except OSError as error:
        log.warning("no copy is kept of %s: %s", file.path, error)


def _keep_one(file: LogFile, session_id: str) -> None:
    """As `keep_copy`; a full disk is an `OSError`, because the next copy would not fit either."""
    if not kept.wanted():
        return
    try:
        kept.keep(file, session_id)
    except OSError as error:
        if is_full(error):
            raise
        log.warning("no copy is kept of %s: %s", file.path, error)


def make_room(store: Store) -> None:
    """Let go of the oldest copies where all together have become too large."""
    if not kept.wanted() or not kept.is_measuring_due():
        return
    try:
        kept.make_room(store.forked())
    except OSError as error:
        log.warning("no kept copy could be removed: %s", error)


def keep_all(
    store: Store, progress: Callable[[str, int, int], None] | None = None, deadline: float | None = None
) -> bool:
    """Copies of all indexed logs that have none yet, the newest first; those that have one cost a look at two files.

    For whoever holds the index's lock. Whether all was done before `deadline` (of `time.monotonic`).

    Raises:
        OSError: the disk is full.
    """
    if not kept.wanted():
        return True
    sources = ((adapter(agent).log_at(path), session_id) for agent, session_id, path in store.sources())
    logs = sorted(((file, session_id) for file, session_id in sources if file), key=lambda one: -one[0].mtime_ns)
    for number, (file, session_id) in enumerate(logs):
        if deadline is not None and time.monotonic() >= deadline:
            return False
        if progress:
            progress("copying", number, len(logs))
        _keep_one(file, session_id)
        make_room(store)
    return True
