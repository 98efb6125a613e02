"""Updates of the index: reads changed logs on demand or completely, embeds new chunks, and erases forgotten sessions.

One process at a time reads logs, and one process at a time embeds, which takes long and must not delay the reading of
new logs. A function that needs such a lock raises `IndexBusyError` if another process has it.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime

from indexer import kept_logs, log_changes
from indexer.embedder import Embedder
from indexer.errors import is_of_the_store, joined, next_step, what_failed
from indexer.locks import LOCK_SECONDS, IndexBusyError, only_writer
from indexer.log_changes import RENEWED, Progress, Report, add_forgotten, changed_logs, forgotten, named_logs
from indexer.masking import mask, mask_parts
from indexer.pipeline import LOG_BYTES, embed_waiting, read_logs, save_session
from indexer.project import Project
from indexer.runs import recording_run
from indexer.safe_files import index_db, index_root, state_home
from indexer.session_export import LABELS, chained, export_path, write_export
from indexer.store.base import Reading, Scope, SessionRow, Words
from indexer.store.damage import remove_older
from indexer.store.sqlite import Store
from indexer.transcripts.base import Agents, LogFile
from indexer.transcripts.line_hashes import hashing_lines
from indexer.transcripts.model import AgentName

#: Size of a large log, which takes longer than one piece of work.
LARGE_BYTES = 5 * LOG_BYTES
#: Deleted text is erased immediately if that takes no longer than this: while a search waits, and after changed logs
#: were read.
ASKED_SECONDS, NAMED_SECONDS = 1.0, 5.0


def read_changes(
    store: Store, adapters: Agents, project: Project | None, seconds: float, progress: Progress | None = None
) -> tuple[Report, list[LogFile]]:
    """Read changed logs for about `seconds`: logs of `project` first, then newer ones.

    Return counts of the work, and the changed logs that were not read, among them all that are too large for `seconds`.
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
    """Read changed logs for about `seconds`, and count the work in `report`. Return the changed logs that are left.

    Logs of more than `largest` bytes are not read. Logs in ``report.failed`` are neither read nor returned, because an
    earlier call could not read them.
    """
    with only_writer(LOCK_SECONDS):
        remove_forgotten(store)
        changed = [file for file in changed_logs(store, adapters, report) if file.location not in report.failed]
        changed = _current_first(changed, adapters, project)
        fits = [file for file in changed if file.size <= largest]
        done = read_logs(store, adapters, fits, report, progress=progress, deadline=time.monotonic() + seconds)
        report.erased = erase_owed(store, ASKED_SECONDS, progress)
        return [file for file in changed if file.location not in done]


def read_named(
    store: Store, adapters: Agents, paths: Collection[str], report: Report, progress: Progress | None = None
) -> None:
    """Read the logs at `paths` that have changed, and count the work in `report`. Other logs are not checked."""
    with only_writer(LOCK_SECONDS):
        remove_forgotten(store)
        read_logs(store, adapters, named_logs(store, adapters, paths, report), report, progress=progress)
        report.erased = erase_owed(store, NAMED_SECONDS, progress)


def read_changed(
    store: Store, adapters: Agents, paths: Collection[str], seconds: float, progress: Progress | None = None
) -> list[LogFile]:
    """Read the changed logs at `paths`, except those that take longer than `seconds`. Return these unread logs.

    Without a log to read, this does not wait for the index's lock.
    """
    changed = named_logs(store, adapters, paths, Report())
    if fits := [file.location for file in changed if file.size <= _largest(seconds)]:
        read_named(store, adapters, fits, Report(), progress)
    return [file for file in changed if file.location not in fits]


def read_rest(
    store: Store, adapters: Agents, report: Report, seconds: float, done: set[str], *, progress: Progress | None = None
) -> bool:
    """Copy logs, index kept copies (compressed copies of logs) and erase deleted text, for about `seconds`.

    Return True if all three are done. Call this after all changed logs were read, and repeat it with the same set
    `done`, which collects the copied logs.
    """
    with only_writer(LOCK_SECONDS):
        if not copy_logs(store, adapters, report, done, progress=progress, deadline=time.monotonic() + seconds):
            return False
        report.erased = erase_owed(store, progress=progress)
        return True


def complete(
    store: Store, adapters: Agents, embedder: Embedder | None, project: Project | None = None, *,
    patience: float, deadline: float | None = None, progress: Progress | None = None,
    waiting: Callable[[], None] | None = None,
) -> Report:  # fmt: skip
    """Read all changed logs, those of `project` first, and embed all chunks without a vector if there is an `embedder`.

    `waiting` is called if another process holds a lock. Embedding stops at `deadline` (of `time.monotonic`), but at
    least one batch is embedded.

    Raises:
        IndexBusyError: another process has held a lock for `patience` seconds, perhaps after all logs were read.
        ModelUnavailableError: the words are indexed, but no vectors can be made.
    """
    report = Report()
    with recording_run(store, report, unless=IndexBusyError):
        with only_writer(patience, waiting=waiting):
            remove_forgotten(store)
            changed = _current_first(changed_logs(store, adapters, report), adapters, project)
            read_logs(store, adapters, changed, report, progress=progress)
            copy_logs(store, adapters, report, set(), progress=progress)
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
    """Embed chunks for about `seconds`, as `embed_waiting` does: `wanted` first, then those in `scope`, then others."""
    report = Report()
    with only_writer(LOCK_SECONDS, "embedding"):
        deadline = time.monotonic() + seconds
        embed_waiting(
            store, embedder, report, first=scope, only_first=only_first, wanted=wanted, deadline=deadline,
            progress=progress,
        )  # fmt: skip
    return report


def _current_first(files: list[LogFile], agents: Agents, project: Project | None) -> list[LogFile]:
    """Sort logs: those whose location shows that they belong to `project` first, and large ones last."""
    here = {agent.name: agent.place_of(project.root) if project else "" for agent in agents}

    def place(file: LogFile) -> tuple[bool, bool]:
        is_here = here[file.agent] != "" and file.location.startswith(here[file.agent])
        return file.size > LARGE_BYTES, not is_here

    return sorted(files, key=place)


def _largest(seconds: float) -> float:
    """Return the size in bytes of the largest log that can be read within `seconds`."""
    return max(seconds * LOG_BYTES, LOG_BYTES)


log = logging.getLogger(__name__)


def copy_logs(
    store: Store, agents: Agents, report: Report, done: set[str], *, progress: Progress | None = None,
    deadline: float | None = None,
) -> bool:  # fmt: skip
    """Copy all logs, if a person wants copies. Index sessions of which only a copy is left.

    The caller holds the index's lock. Return True if all was done before `deadline` (of `time.monotonic`). Logs in
    `done` are skipped, and each handled log is added to `done`.
    """
    remove_unfinished_files()
    try:
        if not kept_logs.keep_all(store, agents, done, progress, deadline):
            return False
    except OSError as error:  # the index is complete all the same
        said = joined(what_failed(error), next_step(error, indexing=True))
        report.failed[str(state_home() / "kept")] = said
        log.warning("copies cannot be kept: %s", said)
    index_kept_copies(store, agents, report, progress)
    renew_after_upgrade(store, agents, report, progress)
    return True


def index_kept_copies(store: Store, agents: Agents, report: Report, progress: Progress | None = None) -> None:
    """Index the kept copies (compressed copies of deleted logs) of sessions that the index does not have."""
    gone = forgotten()
    copies = list(kept_logs.copies())
    for number, copy in enumerate(copies):
        if progress:
            progress("recalling", number, len(copies))
        known = (copy.agent, copy.session_id)
        if copy.agent not in agents.names or known in gone or store.session(*known) is not None:
            continue
        if agents[copy.agent].locate(copy.session_id):
            continue
        _recall_one(store, agents, copy, report)


def renew_after_upgrade(store: Store, agents: Agents, report: Report, progress: Progress | None = None) -> None:
    """Bring sessions whose logs were deleted up to date after an upgrade of smart-fork, once for each version.

    Their stored texts are masked again, and their kept copies (compressed copies of logs) are read again. The caller
    holds the index's lock. If this is interrupted, the next run continues it.
    """
    if store.meta(RENEWED) == log_changes.VERSION:
        return
    sessions = store.without_log()
    for number, session in enumerate(sessions):
        if progress:
            progress("masking", number, len(sessions))
        report.exported += mask_again(store, session)
        copy = kept_logs.find(session.agent, session.session_id)
        if copy and copy.agent in agents.names:
            _recall_one(store, agents, copy, report)
    store.set_meta(RENEWED, log_changes.VERSION)


def _recall_one(store: Store, agents: Agents, copy: kept_logs.KeptLog, report: Report) -> None:
    """Index the session in a kept copy (a compressed copy of its log). An unreadable copy only causes a warning."""
    agent = agents[copy.agent]
    where = agent.home() / copy.place
    try:
        with kept_logs.opened(copy) as path, hashing_lines(bytes.fromhex(store.meta("key"))):
            result = agent.read(path)
        if result.session is None:
            return
        session = dataclasses.replace(result.session, source_path=where)
        file = LogFile(copy.agent, str(where), *copy.log.stamp)
        save_session(store, agents, Reading(file, "", result.checkpoint), session, report)
        store.forget_files([str(where)])  # there is no such log: it is known as one that has gone
    except Exception as error:
        if is_of_the_store(error):
            raise
        log.warning("the copy of %s is passed over: %s", copy.session_id, error)


def forget_session(agent: AgentName, session_id: str, opened: Callable[[], AbstractContextManager[Store]]) -> bool:
    """Remove everything of a session, and never index it again. Return True if no deleted text is left in the index.

    The caller holds the index's lock. Exports and copies go before `opened` opens the index, which may be damaged.
    """
    add_forgotten(agent, session_id, datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"))
    _remove_forgotten_files()
    with opened() as store:
        remove_forgotten(store)
        return erase_owed(store)


def remove_forgotten(store: Store) -> None:
    """Remove everything of sessions that a person asked to forget. The caller holds the index's lock."""
    _remove_forgotten_files()
    for agent, session_id in forgotten():
        store.forget_session(agent, session_id)


def _remove_forgotten_files() -> None:
    """Remove exports and kept copies of forgotten sessions, and indexes set aside earlier, which may contain them."""
    kept_logs.sweep_reading()
    gone = forgotten()
    for agent, session_id in gone:
        kept_logs.remove(agent, session_id)
        export_path(agent, session_id).unlink(missing_ok=True)
    if gone:
        remove_older(index_db(), max(gone.values()))


def erase_owed(store: Store, seconds: float | None = None, progress: Progress | None = None) -> bool:
    """Erase deleted text from the index's files, and remove all indexes set aside. Return True if all is erased.

    The caller holds the index's lock. With `seconds`, erase only if that takes about this time or less.
    """
    if not store.owes_erasing():
        return True
    remove_unfinished_files()
    kept_logs.sweep_unused()
    remove_older(index_db(), datetime.now(UTC).isoformat())
    if progress:
        progress("erasing", 0, 1)
    erased = store.erase(seconds)
    if progress:
        progress("erasing", 1, 1)
    if not erased:
        log.info("what was taken out of the index is erased from its file at the next occasion")
    return erased


def remove_unfinished_files() -> None:
    """Remove what killed processes left: partly written exports and copies, and temporary logs of copies.

    The caller holds the index's lock.
    """
    kept_logs.sweep_reading()
    for folder in (*index_root().glob("*/"), *kept_logs.folders()):
        for half in folder.glob(".*.tmp"):
            half.unlink(missing_ok=True)


# Sessions whose logs the agent has deleted, masked again: what masks them now knows secrets that an older one left.


def mask_again(store: Store, session: SessionRow) -> bool:
    """Mask again the stored texts and the export of a session whose log is gone. Return True if the export changed.

    Its names of code are dropped: they cannot be checked for secrets without the tool outputs.
    """
    placements = sorted(store.placements_of(session.row), key=lambda placement: placement.position)
    known = store.texts([placement.chunk for placement in placements])
    texts = mask_parts([known[placement.chunk] for placement in placements])
    said = dict.fromkeys(LABELS, "")
    for placement, text in zip(placements, texts, strict=True):
        said[placement.role] += text.removeprefix(LABELS[placement.role]) + "\n"
    title, others, headline = map(mask, (session.title, session.also_called, session.headline))
    words = Words(title, said["user"], said["assistant"], said["action"], "", also_called=others, headline=headline)
    store.replace_texts(session.row, [*zip(chained(texts, session.root_id), texts, strict=True)], words)
    path = export_path(session.agent, session.session_id)
    with suppress(FileNotFoundError):
        return write_export(path, mask(path.read_text("utf-8", "replace")))
    return False
