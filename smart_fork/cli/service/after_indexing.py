"""The work after each index run: record each session's commits, and have a search program read the exports.

A search program, if one is configured, is used instead of smart-fork's own search. Exports are sessions as Markdown.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from indexer.embedder import ModelUnavailableError
from indexer.errors import joined
from indexer.locks import IndexBusyError
from indexer.log_changes import Progress
from indexer.store.schema import VectorsUnavailableError
from indexer.store.sqlite import Store
from smart_fork.errors import SmartForkError
from smart_fork.finding import project_places
from smart_fork.finding.index_access import opened
from smart_fork.finding.request import configured_engine
from smart_fork.finding.session_commits import note_commits

log = logging.getLogger(__name__)


@contextmanager
def renewed(store: Store, patience: float, progress: Progress | None = None, *, vectors: bool = True) -> Iterator[None]:
    """A context for an index run. At its end, record commits, and have the search program read the exports.

    This is also done if the embedding model is missing. Without `vectors`, the search program indexes words only.

    Raises:
        IndexBusyError: another process has been indexing for `patience` seconds.
        SmartForkError: the search program is missing, or failed.
    """
    try:
        yield
    except (ModelUnavailableError, VectorsUnavailableError):
        _renew(store, patience, progress, vectors=vectors)
        raise
    _renew(store, patience, progress, vectors=vectors)


def _renew(store: Store, patience: float, progress: Progress | None = None, *, vectors: bool = True) -> None:
    project_places.note(store.directories())
    note_commits(store, patience, progress)
    if (engine := configured_engine()) is None:
        return
    if progress is not None:
        progress(f"{engine.name} reads the exports", 0, 1)
    stamp = store.counts().updated_at
    if vectors:
        engine.renew(stamp, patience)
    else:
        engine.refresh(stamp)


class Renewal:
    """The work after index runs of the service (see `renewed`), in background threads, one at a time.

    If other index runs end meanwhile, the work is done once more, for all of them.
    """

    def __init__(self) -> None:
        self._running, self._waiting = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None

    def soon(self) -> None:
        """Let a background thread do the work, and return immediately."""
        if self._waiting.acquire(blocking=False):  # else a thread is about to do it
            self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        if (thread := self._thread) is not None:
            thread.join()

    def _work(self) -> None:
        with self._running:
            self._waiting.release()
            renew_quietly()


def renew_quietly() -> None:
    """Do the work after an index run (see `renewed`). Log a failure instead of raising it."""
    try:
        with opened() as store:
            _renew(store, patience=0.0)
    except IndexBusyError:
        log.info("another process is indexing, or has the search program read the exports")
    except SmartForkError as error:
        log.error("%s", joined(error.message, error.hint))  # noqa: TRY400 - the message says it all
    except Exception:  # the next run tries again
        log.exception("the search program has not read the exports")
