"""Bringing the index up to date: on demand for the one who asks, or completely.

One process at a time reads logs and one embeds; embedding takes long, and must not keep new words out. Most
questions find that nothing has changed: what reads and embeds is imported where there is something to do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection

from indexer.changes import Progress, Report, changed_logs, named_logs
from indexer.embedder import Embedder
from indexer.locks import LOCK_SECONDS, IndexBusyError, only_writer
from indexer.lost_logs import erase_owed, remember, sweep
from indexer.pipeline import LOG_BYTES, embed_waiting, read_logs
from indexer.project import Project
from indexer.runs import recorded
from indexer.store.base import Scope, Store
from indexer.transcripts.base import Agents, LogFile

#: A log that takes longer than a piece of work has time for.
LARGE_BYTES = 5 * LOG_BYTES
#: What was taken out is erased at once where that takes about no longer: while somebody waits, and for logs that have
#: just changed.
ASKED_SECONDS, NAMED_SECONDS = 1.0, 5.0


def read_changes(
    store: Store,
    adapters: Agents,
    project: Project | None,
    seconds: float,
    progress: Progress | None = None,
) -> tuple[Report, list[LogFile]]:
    """Read what has changed, the current project's logs and newer ones first, for at most about `seconds`.

    Returns the report and the changed logs that are left for later: also each that alone would take longer.

    Raises:
        IndexBusyError: another process is indexing; the index can be searched as it is.
    """
    report = Report()
    # Nobody waits for another process where there is nothing to write.
    if not changed_logs(store, adapters, report) and not store.owes_erasing():
        return report, []
    report = Report()
    return report, read_some(
        store, adapters, report, seconds, project=project, progress=progress, largest=_largest(seconds)
    )


def read_some(
    store: Store, adapters: Agents, report: Report, seconds: float, *,
    project: Project | None = None, progress: Progress | None = None, largest: float = math.inf,
) -> list[LogFile]:  # fmt: skip
    """Read what has changed for at most about `seconds`, into `report`; return the changed logs that are left.

    No log of more than `largest` bytes is read.

    What could not be read before, as `report` says, is not tried again: a slow disk would never get beyond it.

    Raises:
        IndexBusyError: another process is indexing.
    """
    with only_writer(LOCK_SECONDS):
        sweep(store)
        changed = [file for file in changed_logs(store, adapters, report) if file.location not in report.failed]
        changed = _current_first(changed, adapters, project)
        fits = [file for file in changed if file.size <= largest]
        done = read_logs(store, adapters, fits, report, progress=progress, deadline=time.monotonic() + seconds)
        report.erased = erase_owed(store, ASKED_SECONDS, progress)
        return [file for file in changed if file.location not in done]


def read_named(
    store: Store, adapters: Agents, paths: Collection[str], report: Report, progress: Progress | None = None
) -> None:
    """Read these logs, where they have changed, into `report`; no other is looked at.

    Raises:
        IndexBusyError: another process is indexing.
    """
    with only_writer(LOCK_SECONDS):
        sweep(store)
        read_logs(store, adapters, named_logs(store, adapters, paths, report), report, progress=progress)
        report.erased = erase_owed(store, NAMED_SECONDS, progress)


def read_changed(
    store: Store, adapters: Agents, paths: Collection[str], seconds: float, progress: Progress | None = None
) -> list[LogFile]:
    """Read these logs where they have changed, as `read_named` does; nobody waits where they have not.

    Returns those that are left, because each would take longer than `seconds`.

    Raises:
        IndexBusyError: another process is indexing; the index can be searched as it is.
    """
    changed = named_logs(store, adapters, paths, Report())
    if fits := [file.location for file in changed if file.size <= _largest(seconds)]:
        read_named(store, adapters, fits, Report(), progress)
    return [file for file in changed if file.location not in fits]


def read_rest(
    store: Store, adapters: Agents, report: Report, seconds: float, done: set[str], *, progress: Progress | None = None
) -> bool:
    """Do the work that remains when all logs have been read (see `remembering.remember`), for about `seconds`. Return
    True if it is done. A further call continues if it gets the same set as `done`, empty at first.

    Raises:
        IndexBusyError: another process is indexing.
    """
    with only_writer(LOCK_SECONDS):
        if not remember(store, adapters, report, done, progress=progress, deadline=time.monotonic() + seconds):
            return False
        report.erased = erase_owed(store, progress=progress)
        return True


def complete(
    store: Store, adapters: Agents, embedder: Embedder | None, project: Project | None = None, *,
    patience: float, deadline: float | None = None, progress: Progress | None = None,
    waiting: Callable[[], None] | None = None,
) -> Report:  # fmt: skip
    """Read everything that has changed and embed everything that waits. `waiting` is as that of `only_writer`.

    After `deadline` (of `time.monotonic`) it embeds one batch, and leaves the rest.

    Raises:
        IndexBusyError: another process has been at it for `patience` seconds; if it embeds, everything has been read.
        ModelUnavailableError: the words are indexed, the vectors cannot be made.
    """
    report = Report()
    with recorded(store, report, unless=IndexBusyError):
        with only_writer(patience, waiting=waiting):
            sweep(store)
            changed = _current_first(changed_logs(store, adapters, report), adapters, project)
            read_logs(store, adapters, changed, report, progress=progress)
            remember(store, adapters, report, set(), progress=progress)
            report.erased = erase_owed(store, progress=progress)
        if embedder is not None:
            with only_writer(patience, "embedding", waiting):
                first = store.scope(project, adapters.names, automated=False) if project else None
                embed_waiting(store, embedder, report, first=first, deadline=deadline, progress=progress)
    return report


def embed_first(
    store: Store, embedder: Embedder, scope: Scope, seconds: float, progress: Progress | None = None, *,
    only_first: bool = False, wanted: Collection[int] = (),
) -> Report:  # fmt: skip
    """Vectors for the chunks in `scope`, then others, for at most about `seconds`; with `only_first` for what exchanges
    in it begin with alone, and for what little else waits. The chunks that are `wanted` come first.

    Raises:
        IndexBusyError, ModelUnavailableError: as `complete`.
    """
    report = Report()
    with only_writer(LOCK_SECONDS, "embedding"):
        deadline = time.monotonic() + seconds
        embed_waiting(
            store, embedder, report, first=scope, only_first=only_first, wanted=wanted, deadline=deadline,
            progress=progress,
        )  # fmt: skip
    return report


def _current_first(files: list[LogFile], agents: Agents, project: Project | None) -> list[LogFile]:
    """Logs of the current project first, as far as their place tells; a large one keeps none waiting."""
    here = {agent.name: agent.place_of(project.root) if project else "" for agent in agents}

    def place(file: LogFile) -> tuple[bool, bool]:
        is_here = here[file.agent] != "" and file.location.startswith(here[file.agent])
        return file.size > LARGE_BYTES, not is_here

    return sorted(files, key=place)


def _largest(seconds: float) -> float:
    """The size of a log that is read within `seconds`; one that is read in no time at all is no large one."""
    return max(seconds * LOG_BYTES, LOG_BYTES)
