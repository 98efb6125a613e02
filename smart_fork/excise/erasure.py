"""Erases cut text from smart-fork's own data beside the index: worker registry, worker output, logs, kept copies.

A person's transcripts are not touched here, and snapshots neither: they are what a cut is undone with.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

import orjson

from indexer import kept_logs, state
from indexer.changes import VERSION, Report, forgotten
from indexer.embedder import ModelUnavailableError
from indexer.export import export_path
from indexer.failures import what_failed
from indexer.files import index_db, state_home, sweep
from indexer.kept_logs import pieces, sweep_reading
from indexer.locks import IndexBusyError, only_writer
from indexer.lost_logs import erase_owed, sweep_staged
from indexer.pipeline import embed_waiting, read_logs
from indexer.project import Project, is_within, project_of, resolve
from indexer.store.base import Document, Reading, SessionRow, Words
from indexer.store.damage import remove_older
from indexer.store.schema import VectorsUnavailableError
from indexer.store.sqlite import SqliteStore
from indexer.transcripts.base import UNREAD, LogFile
from indexer.transcripts.model import AgentName
from indexer.transcripts.model import Session as Conversation
from smart_fork.agents.cuts import snapshots
from smart_fork.agents.cuts.model import Transcript
from smart_fork.agents.readers import READERS
from smart_fork.errors import IndexUnavailable, NotFound, SmartForkError, Usage, advice
from smart_fork.excise.answer import Refreshed
from smart_fork.excise.text_search import agent_of, is_worker_of, own_words, words_in, worker_text
from smart_fork.excise.transcript import PATIENCE, dependent_logs, load_for_cut, resolve_transcript
from smart_fork.excise.verification import cut_text_of
from smart_fork.excise.writing import finish_cut, written_path
from smart_fork.finding import session_notes
from smart_fork.finding.index_access import opened
from smart_fork.forking import temporary_logs
from smart_fork.system.processes import Processes
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_file import has_registry

log = logging.getLogger(__name__)

#: Stands in the register in place of what a worker was told.
PLACEHOLDER = "[cut]"
#: Seconds for making vectors. The next run makes the rest.
EMBED_SECONDS = 5.0
#: Where more passages have no vector than a cut makes of one session, the next run makes them.
MAX_WAITING = 2048
_TOKEN = re.compile(rb"[0-9A-Za-z\x80-\xff]{5,}")


def note_pending(session: Transcript, session_ids: Collection[str], change: str = "") -> int:
    """Note a cut before it is made: what it removes of these sessions is erased, and everything made of the session is
    cut as well. `run_pending` makes up for a kill. The note has none of their words.

    Raises:
        OSError: it cannot be kept.
    """
    return _note({
        "path": str(session.source_path), "tool": session.tool, "session_ids": sorted(session_ids), "change": change,
    })  # fmt: skip


def note_cut_done(note: int) -> None:
    """Note that the cut is made wherever it had to be; what was cut is still to be erased.

    Raises:
        OSError: it cannot be noted.
    """
    state.change("UPDATE owed_erasures SET facts = json_set(facts, '$.change', '') WHERE id = ?", note)


def note_forgetting(agent: AgentName, session_id: str) -> None:
    """The same for a session that is about to be put on the list of those that are forgotten."""
    _note({"forget": [agent, session_id]})


def _note(facts: dict[str, object]) -> int:
    with state.changing() as db:
        said = orjson.dumps(facts).decode()
        db.execute("INSERT INTO owed_erasures (pid, facts) VALUES (?, ?)", (os.getpid(), said))
        return db.last_insert_rowid()


def erase_again(reference: str | None, tool: str = "auto") -> bool:
    """Erase again whatever of the cuts of a session is found anywhere. Whether nothing is known to be left.

    Raises:
        NotFound, Usage: there is no such transcript.
    """
    session = resolve_transcript(reference, tool)
    changes = [one.change for one in snapshots.cuts(written_path(session)) if one.change]
    for change in changes or [""]:
        note_pending(session, {session.session_id}, change)
    index = refresh(session.tool, [session.source_path])
    return run_pending() and (not index_db().exists() if index.erased is None else index.erased)


def run_pending(known: Mapping[int, Collection[str]] = MappingProxyType({})) -> bool:
    """Erase whatever is owed, but by another process that is at it. Whether nothing is any more.

    `known` are the words that notes stand for, where the caller has just read its session.
    """
    try:
        notes = state.rows("SELECT id, pid, facts FROM owed_erasures ORDER BY id")
    except OSError as error:
        log.warning("what is to be erased is not known: %s", error)
        return False
    left = [note for note, pid, facts in notes if not _settled(note, pid, orjson.loads(facts), known.get(note))]
    return not notes or (_is_erased_elsewhere() and not left)


def _is_erased_elsewhere() -> bool:
    """Return True if qmd, which few have installed, keeps nothing that was removed from the exports."""
    return not (state_home() / "qmd").exists() or bool(resolve_name("smart_fork.finding.qmd:Qmd")().erase())


def _settled(note: int, pid: int, facts: Mapping[str, Any], words: Collection[str] | None) -> bool:
    if pid != os.getpid() and Processes().alive(pid):
        return True
    try:
        done = _forgotten(*facts["forget"]) if "forget" in facts else _cut_erased(facts, words)
    except (NotFound, Usage) as error:  # its log is gone
        log.warning("what is to be erased is not known any more: %s: %s", facts, error)
        done = True
    except (SmartForkError, OSError) as error:
        log.warning("what is to be erased is so at the next occasion: %s", error)
        done = False
    if done:
        state.change("DELETE FROM owed_erasures WHERE id = ?", note)
    return done


def _cut_erased(facts: Mapping[str, Any], words: Collection[str] | None) -> bool:
    if words is not None and not facts["change"]:
        return erase(agent_of(facts["tool"]), facts["session_ids"], words)
    session = load_for_cut(facts["tool"], Path(facts["path"]))
    ids = set(facts["session_ids"])
    made, is_read = True, True
    if change := facts["change"]:
        _, left = finish_cut(session, change)
        noted = [one for one in snapshots.logged() if one.change == change and not one.beside]
        index = refresh(session.tool, [session.source_path, *(Path(one.source_path) for one in noted)])
        made, is_read = not left, index.updated or not index_db().exists()
        ids |= {one.session_id for one in noted}
    return erase(agent_of(session.tool), sorted(ids), cut_text_of(session).in_bytes) and made and is_read


def _forgotten(agent: AgentName, session_id: str) -> bool:
    if (agent, session_id) not in forgotten():
        return True  # it did not come to that
    snapshots.forget(session_id)
    temporary_logs.clear()
    with only_writer(PATIENCE):
        _remove_older_indexes()
    return forget_workers(session_id)


def erase(
    agent: AgentName | None, session_ids: Collection[str], words: Iterable[str], staying: Iterable[str] = ()
) -> bool:
    """Take the words of these texts that `staying` has not out of all of ours but index, exports and snapshots.

    Return whether that is done.
    """
    wanted = words_in(*words) - words_in(*staying)
    if not wanted or not state_home().is_dir():
        return True
    try:
        others, erased = _take_back(session_ids, wanted)
        _blot_logs(wanted, others)
        session_notes.take_back(session_ids, lambda text: bool(wanted & words_in(text)))
        with only_writer(PATIENCE):
            sweep_staged()
            sweep_reading()
            temporary_logs.clear()
            _remove_older_indexes()
            for copy in filter(None, (kept_logs.find(agent, one) for one in session_ids)) if agent else ():
                _leave_out(copy, wanted)
            kept_logs.sweep_unused()
        for one in session_ids:
            sweep(snapshots.folder_of(one), 0)
    except (SmartForkError, OSError) as error:
        log.warning("what was cut may still be in %s: %s", state_home(), error)
        return False
    return erased


def _remove_older_indexes() -> None:
    """One that is damaged may be set aside only now, with what was taken out before."""
    remove_older(index_db(), datetime.now(UTC).isoformat())


def forget_workers(session_id: str) -> bool:
    """Of workers whose session that is, keep that there were such workers and nothing that they were told or said."""
    if not has_registry():
        return True
    with Registry() as registry:
        own = registry.of_session(session_id)
        for worker in registry.workers():
            went_on = worker.source_session_id == session_id and worker.kind in ("resume", "continue")
            if worker == own or went_on:
                registry.take_back(
                    worker.id, name=worker.id, prompt=PLACEHOLDER, command=[*worker.command[:1], PLACEHOLDER]
                )
                _remove_output(worker)
        return registry.erase()


def _leave_out(copy: kept_logs.KeptLog, wanted: frozenset[str]) -> None:
    """Drop files kept beside a log, such as long outputs, that have these words."""
    texts = {name: b"".join(pieces(copy.folder, part)) for name, part in copy.beside.items()}
    if names := [name for name, text in texts.items() if wanted & words_in(text.decode("utf-8", "ignore"))]:
        kept_logs.leave_out(copy, names)


def _take_back(session_ids: Collection[str], wanted: frozenset[str]) -> tuple[list[WorkerRecord], bool]:
    """Take the words out of the register. Return the other sessions' workers, and whether it is erased."""
    if not has_registry():
        return [], True
    with Registry() as registry:
        workers = registry.workers()
        for worker in workers:
            if is_worker_of(worker, session_ids) and wanted & words_in(worker_text(worker)):
                registry.take_back(
                    worker.id,
                    name=worker.id if wanted & words_in(worker.name) else worker.name,
                    prompt=_without(worker.prompt, wanted),
                    command=[_without(word, wanted) for word in worker.command],
                )
        return [worker for worker in workers if not is_worker_of(worker, session_ids)], registry.erase()


def _without(text: str, wanted: frozenset[str]) -> str:
    return PLACEHOLDER if wanted & words_in(text) else text


def _blot_logs(wanted: frozenset[str], others: Iterable[WorkerRecord]) -> None:
    """Write over the words where they stand: whoever has a log open goes on with it."""
    told = wanted - own_words()
    spared = tuple(f"{worker.id}." for worker in others)
    if not told:
        return
    for path in (state_home() / "logs").rglob("*"):
        if path.is_file() and not path.is_symlink() and not path.name.startswith(spared):
            with suppress(FileNotFoundError):
                _blot(path, told)


def _blot(path: Path, words: frozenset[str]) -> None:
    with path.open("r+b") as file:
        for found in _TOKEN.finditer(file.read()):
            if found[0].decode("utf-8", "ignore").lower() in words:
                os.pwrite(file.fileno(), b"*" * len(found[0]), found.start())


def _remove_output(worker: WorkerRecord) -> None:
    for path in (state_home() / "logs" / "workers").glob(f"{worker.id}.*"):
        path.unlink(missing_ok=True)
    if worker.log_path and is_within(resolve(Path(worker.log_path)), resolve(state_home())):
        Path(worker.log_path).unlink(missing_ok=True)


def refresh(tool: str, paths: Iterable[Path]) -> Refreshed:
    """Have the index read these logs of one agent again from their first byte, and the forks that read from them: then
    no export, chunk or vector has what was cut.
    """
    changed = list(paths)
    logs = (log for path in changed for log in _logs_of(tool, path))
    wanted = list(dict.fromkeys((*logs, *dependent_logs(tool, changed))))
    for path in wanted:
        _kept_again(tool, path)
    if not index_db().exists():
        return Refreshed(updated=False, note="there is no index")
    try:
        with only_writer(PATIENCE), opened() as store:
            store.owe_erasing()
            read, known = _read_again(store, tool, wanted)
            kept_logs.sweep_unused()
            erased = erase_owed(store)
        return Refreshed(updated=True, read=read, erased=erased, note=_embed(known))
    except (IndexBusyError, IndexUnavailable, OSError) as error:
        again = advice("run `smart-fork index run`, it reads them again", tool="the next smart_fork reads them again")
        return Refreshed(updated=False, note=f"{what_failed(error)}: {again}")


def _logs_of(tool: str, path: Path) -> list[Path]:
    """The logs that a change of this file has changed: not itself where what it has was taken back."""
    found = READERS[tool].logs_of(str(path)) if tool in READERS.names else ()
    return [one.path for one in found] or [path]


def _kept_again(tool: str, path: Path) -> None:
    """Delete a log's export, since nothing rewrites it if the index does not know the log.

    The compressed copy that was kept of this log, if one was, is what the log is now, or is no more.
    """
    file = _log_file(tool, str(path))
    if file is None:
        return
    session_id = READERS[file.agent].id_of(path)
    export_path(file.agent, session_id).unlink(missing_ok=True)
    if kept_logs.find(file.agent, session_id) is None:
        return
    if READERS[file.agent].is_composed(file):  # another file may be what has changed
        kept_logs.remove(file.agent, session_id)
    try:
        kept_logs.keep(file, session_id, READERS[file.agent])
    except OSError as error:
        log.warning("the copy that was kept of %s is removed: %s", path, error)
        kept_logs.remove(file.agent, session_id)


def _read_again(store: SqliteStore, tool: str, paths: list[Path]) -> tuple[int, list[tuple[int, bytes]]]:
    """Read these logs again. Return how many were read, and the vectors of passages whose text is unchanged."""
    there = {path.resolve() for path in paths}
    names = {path.name for path in (*paths, *there)}  # of very many: to resolve one asks for each folder above it
    likely = (one for one in store.seen() if one.rpartition("/")[2] in names or os.path.islink(one))  # noqa: PTH114
    seen = [location for location in likely if Path(location).resolve() in there]
    rows = {location: row for location in seen if (row := _row_of(store, tool, location)) is not None}
    before = _texts(store, rows.values())
    known = {before[chunk]: vector for chunk, vector in store.vectors(before).items()}
    store.forget_files(seen)
    files = [file for location in seen if (file := _log_file(tool, location)) is not None]
    report = Report()
    read_logs(store, READERS, files, report)
    for file in files:
        row = rows.get(file.location)
        if row is not None and _unread(store, row):
            _empty(store, row, file)
    texts = _texts(store, filter(None, (_row_of(store, tool, location) for location in rows))) if known else {}
    return len(files), [(chunk, known[text]) for chunk, text in texts.items() if text in known]


def _texts(store: SqliteStore, rows: Iterable[SessionRow]) -> dict[int, str]:
    return store.texts({place.chunk for row in rows for place in store.placements_of(row.row)})


def _row_of(store: SqliteStore, tool: str, location: str) -> SessionRow | None:
    agent = _agent_of(tool, location)
    return store.session(agent, READERS[agent].id_of(Path(location))) if agent else None


def _unread(store: SqliteStore, row: SessionRow) -> bool:
    """Return True if the session is no longer read from any log."""
    now = store.session(row.agent, row.session_id)
    return now is not None and not now.path


def _empty(store: SqliteStore, row: SessionRow, file: LogFile) -> None:
    """Nobody asks anything in it any more: nothing of it may be found."""
    rest = Conversation(row.agent, row.session_id, file.path, (), cwd=row.cwd, root_id=row.root_id)
    project = project_of(row.repo_root) if row.repo_root else Project("", "", git=False)
    document = Document(rest, project, row.resolved_cwd, (), Words("", "", "", "", ""))
    store.save(Reading(file, VERSION, UNREAD), document)
    store.save(Reading(file, VERSION, UNREAD, skipped="it has no prompt"), None)
    export_path(row.agent, row.session_id).unlink(missing_ok=True)


def _agent_of(tool: str, location: str) -> AgentName | None:
    """Return the agent of a log: the cut's tool, or else the agent that has the log. `None` if it is no log."""
    if tool != Transcript.UNKNOWN:
        return tool if tool in READERS.names else None
    return next((agent.name for agent in READERS if agent.log_at(location)), None)


def _log_file(tool: str, location: str) -> LogFile | None:
    agent = _agent_of(tool, location)
    if agent is None or (known := READERS[agent].log_at(location)) is not None:
        return None if agent is None else known
    with suppress(OSError):
        info = os.stat(location)  # noqa: PTH116 - as the listing gives it
        return LogFile(agent, location, info.st_size, info.st_mtime_ns, info.st_ino)
    return None


def _embed(known: Sequence[tuple[int, bytes]]) -> str:
    """Add vectors to passages without one, if the index has vectors. Passages behind a cut have the text that they had,
    and `known` are their vectors.
    """
    from indexer.embedding import configured_embedder

    try:
        with only_writer(PATIENCE, "embedding"), opened() as store:
            if not (model := store.meta("model")):
                return ""
            embedder = configured_embedder()
            if known and model == embedder.model:
                store.use_model(model, len(known[0][1]) // 4)
                store.add_vectors(known)
            counts = store.counts()
            if counts.chunks - counts.embedded > MAX_WAITING:
                return "the remaining passages are embedded later: the index was not complete"
            embed_waiting(store, embedder, Report(), deadline=time.monotonic() + EMBED_SECONDS)
    except (ModelUnavailableError, VectorsUnavailableError, IndexBusyError) as error:
        return f"the remaining passages are embedded later: {error}"
    return ""
