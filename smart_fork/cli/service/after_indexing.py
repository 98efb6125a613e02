"""The work after each index run: note each session's commits, and let a configured search program read the exports.

A search program is a search other than smart-fork's own. The exports are Markdown files of sessions.
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
from smart_fork.finding.commits import note_commits
from smart_fork.finding.index_access import opened
from smart_fork.finding.request import configured_engine
from smart_fork.repository import project_places

log = logging.getLogger(__name__)


@contextmanager
def renewed(store: Store, patience: float, progress: Progress | None = None, *, vectors: bool = True) -> Iterator[None]:
    """A context for an index run. When it ends, note commits, and let the search program read the exports (Markdown
    files).

    A search program is a search other than smart-fork's own; without `vectors`, it gets words only. The work is also
    done if the embedding model is missing.

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
    """The work after the service's index runs (see `renewed`), in one background thread.

    If another index run ends meanwhile, the work is done once more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due = False
        self._thread: threading.Thread | None = None

    def soon(self) -> None:
        """Have the background thread do the work, and return immediately."""
        with self._lock:
            self._due = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        if (thread := self._thread) is not None:
            thread.join()

    def _work(self) -> None:
        while self._next():
            renew_quietly()

    def _next(self) -> bool:
        with self._lock:
            due, self._due = self._due, False
            if not due:
                self._thread = None
            return due


def renew_quietly() -> None:
    """Do the work after an index run (see `renewed`). A failure is logged, not raised."""
    try:
        with opened() as store:
            _renew(store, patience=0.0)
    except IndexBusyError:
        log.info("another process is indexing, or has the search program read the exports")
    except SmartForkError as error:
        log.error("%s", joined(error.message, error.hint))  # noqa: TRY400 - the message says it all
    except Exception:  # the next run tries again
        log.exception("the search program has not read the exports")
