"""Sessions of which a copy alone is left are indexed as well; of those that a person has forgotten nothing stays."""

from __future__ import annotations

import dataclasses
import logging
from contextlib import suppress
from datetime import UTC, datetime

from indexer import changes, kept_logs
from indexer.changes import RENEWED, Progress, Report, forgotten
from indexer.errors import joined
from indexer.export import LABELS, chained, export_path, write_export
from indexer.failures import is_of_the_store, next_step, what_failed
from indexer.files import index_db, index_root, state_home
from indexer.masking import mask, mask_parts
from indexer.pipeline import save_session
from indexer.store.base import Reading, SessionRow, Store, Words
from indexer.store.damage import remove_older
from indexer.transcripts.authored import noting
from indexer.transcripts.base import Agents, LogFile

log = logging.getLogger(__name__)


def remember(
    store: Store, agents: Agents, report: Report, done: set[str], *, progress: Progress | None = None,
    deadline: float | None = None,
) -> bool:  # fmt: skip
    """Keep copies of all logs, where that is wanted, and index those that are all that is left of a session.

    For whoever holds the index's lock. Whether all was done before `deadline` (of `time.monotonic`); see `keep_all` for
    `done`.
    """
    sweep_staged()
    try:
        if not kept_logs.keep_all(store, agents, done, progress, deadline):
            return False
    except OSError as error:  # the index is complete all the same
        said = joined(what_failed(error), next_step(error, indexing=True))
        report.failed[str(state_home() / "kept")] = said
        log.warning("copies cannot be kept: %s", said)
    recall(store, agents, report, progress)
    renew(store, agents, report, progress)
    return True


def recall(store: Store, agents: Agents, report: Report, progress: Progress | None = None) -> None:
    """Index the copies of sessions that the index does not know: it was deleted after their logs had been.

    For whoever holds the index's lock. A copy that cannot be read is logged.
    """
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


def renew(store: Store, agents: Agents, report: Report, progress: Progress | None = None) -> None:
    """Once a version: read what is left of deleted logs again where there is a copy, else mask what is stored of them.

    For whoever holds the index's lock. What is left undone by whatever interrupts it is done at the next run.
    """
    if store.meta(RENEWED) == changes.VERSION:
        return
    sessions = store.without_log()
    for number, session in enumerate(sessions):
        if progress:
            progress("masking", number, len(sessions))
        report.exported += mask_again(store, session)
        copy = kept_logs.find(session.agent, session.session_id)
        if copy and copy.agent in agents.names:
            _recall_one(store, agents, copy, report)
    store.set_meta(RENEWED, changes.VERSION)


def _recall_one(store: Store, agents: Agents, copy: kept_logs.KeptLog, report: Report) -> None:
    """Index a copy. An odd one is passed over: it must not keep others out, and what is stored of it stays."""
    agent = agents[copy.agent]
    where = agent.home() / copy.place
    try:
        with kept_logs.opened(copy) as path, noting(bytes.fromhex(store.meta("key"))):
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


def sweep(store: Store) -> None:
    """Take everything of forgotten sessions away: what a killed process has left is completed so.

    For whoever holds the index's lock.
    """
    sweep_files()
    for agent, session_id in forgotten():
        store.forget_session(agent, session_id)


def sweep_files() -> None:
    """Take the copies and exports of forgotten sessions away, and older indexes, whatever state the index is in."""
    kept_logs.sweep_reading()
    gone = forgotten()
    for agent, session_id in gone:
        kept_logs.remove(agent, session_id)
        export_path(agent, session_id).unlink(missing_ok=True)
    if gone:
        remove_older(index_db(), max(gone.values()))


def erase_owed(store: Store, seconds: float | None = None, progress: Progress | None = None) -> bool:
    """Have nothing of what was taken out of the index in any file of it, nor in older indexes. Whether that is so now.

    For whoever holds the index's lock. With `seconds` only where it takes about no longer.
    """
    if not store.owes_erasing():
        return True
    sweep_staged()
    kept_logs.sweep_reading()
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


def sweep_staged() -> None:
    """Take away the halves of exports and copies that killed processes have left. For whoever holds the index's lock:
    nobody else is writing any.
    """
    for folder in (*index_root().glob("*/"), *kept_logs.folders()):
        for half in folder.glob(".*.tmp"):
            half.unlink(missing_ok=True)


# Sessions whose logs the agent has deleted, masked again: what masks them now knows secrets that an older one left.


def mask_again(store: Store, session: SessionRow) -> bool:
    """Mask what is left of a session in the index and in its export. Whether the export is another one now.

    Names that its tools saw are let go of: nothing tells any more what stood around them. For whoever holds the index's
    lock.
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
