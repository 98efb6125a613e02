"""Erases text from smart-fork's own data: worker registry, worker output, logs, kept copies of logs, index.

Erased are texts cut from a session, and all texts of forgotten sessions. Agents' logs are not touched. Snapshots
(contents of files before a cut) stay, since a cut is undone with them.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

import orjson

from indexer import kept_logs, state_db
from indexer.json_values import Value, rare
from indexer.kept_logs import pieces
from indexer.lazy_compilation import dataclass
from indexer.locks import IndexBusyError, only_writer
from indexer.log_changes import forgotten
from indexer.project import is_within, resolve
from indexer.refresh import forget_session, remove_unfinished_files
from indexer.safe_files import index_db, state_home, sweep
from indexer.store.damage import remove_older
from indexer.transcripts.model import AgentName
from smart_fork.agents.excision import snapshots
from smart_fork.agents.excision.transcript import Transcript
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import NotFound, SmartForkError, Usage, advice
from smart_fork.excise.answer import UncutFile
from smart_fork.excise.cut_words import agent_of, is_worker_of, own_words, words_in, worker_text
from smart_fork.excise.lookup import INDEX_LOCK_SECONDS, derived_from, load_for_cut, own_files, resolve_transcript
from smart_fork.excise.verification import cut_text_of
from smart_fork.excise.writing import finish_cut, refresh, written_path
from smart_fork.finding import session_lookup, session_notes
from smart_fork.finding.index_access import opened
from smart_fork.finding.session_lookup import Located
from smart_fork.forking.handover_text import delete_leftover_logs
from smart_fork.system import call_context
from smart_fork.system.processes import Processes
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_path import has_registry

log = logging.getLogger(__name__)

#: Replaces the erased name, prompt and output of a worker in the worker registry.
PLACEHOLDER = "[cut]"
_TOKEN = re.compile(rb"[0-9A-Za-z\x80-\xff]{5,}")


def note_pending(session: Transcript, session_ids: Collection[str], change: str = "") -> int:
    """Store a note about a cut before it is made, and return the note's number. The note has none of the cut words.

    If this process is killed, `run_pending` completes the cut with id `change`, and erases the text of all
    `session_ids`.
    """
    return _note({
        "path": str(session.source_path), "tool": session.tool, "session_ids": sorted(session_ids), "change": change,
    })  # fmt: skip


def note_cut_done(note: int) -> None:
    """Record in a cut's note (see `note_pending`) that all files are cut, so that only the erasing is pending."""
    state_db.change("UPDATE owed_erasures SET facts = json_set(facts, '$.change', '') WHERE id = ?", note)


def _note(facts: dict[str, object]) -> int:
    with state_db.changing() as db:
        said = orjson.dumps(facts).decode()
        db.execute("INSERT INTO owed_erasures (pid, facts) VALUES (?, ?)", (os.getpid(), said))
        return db.last_insert_rowid()


def erase_again(reference: str | None, tool: str = "auto") -> bool:
    """Erase again the text that was cut from a session, in its copies and in smart-fork's own files.

    Return True if no cut text is known to be left.
    """
    session = resolve_transcript(reference, tool)
    changes = [one.change for one in snapshots.cuts(written_path(session)) if one.change]
    for change in changes or [""]:
        note_pending(session, {session.session_id}, change)
    index = refresh(session.tool, [session.source_path])
    return run_pending() and (not index_db().exists() if index.erased is None else index.erased)


def run_pending(known: Mapping[int, Collection[str]] = MappingProxyType({})) -> bool:
    """Run the erasures that stored notes ask for (see `note_pending`), except notes of other live processes.

    Return True if no other note is left. `known` maps numbers of notes to the cut words, which saves reading the
    sessions again.
    """
    try:
        notes = state_db.rows("SELECT id, pid, facts FROM owed_erasures ORDER BY id")
    except OSError as error:
        log.warning("what is to be erased is not known: %s", error)
        return False
    left = [note for note, pid, facts in notes if not _settled(note, pid, orjson.loads(facts), known.get(note))]
    return not notes or (_erase_from_qmd() and not left)


def _erase_from_qmd() -> bool:
    """Erase deleted text from the index of qmd, an optional search program. Return True also if qmd is not used."""
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
        state_db.change("DELETE FROM owed_erasures WHERE id = ?", note)
    return done


def _cut_erased(facts: Mapping[str, Any], words: Collection[str] | None) -> bool:
    if words is not None and not facts["change"]:
        return erase(agent_of(facts["tool"]), facts["session_ids"], words)
    session = load_for_cut(facts["tool"], Path(facts["path"]))
    ids = set(facts["session_ids"])
    made, is_read = True, True
    if change := facts["change"]:
        _, left = finish_cut(session, change)
        noted = [one for one in snapshots.noted_changes() if one.change == change and not one.beside]
        index = refresh(session.tool, [session.source_path, *(Path(one.source_path) for one in noted)])
        made, is_read = not left, index.updated or not index_db().exists()
        ids |= {one.session_id for one in noted}
    return erase(agent_of(session.tool), sorted(ids), cut_text_of(session).in_bytes) and made and is_read


def _forgotten(agent: AgentName, session_id: str) -> bool:
    if (agent, session_id) not in forgotten():
        return True  # it did not come to that
    snapshots.forget(session_id)
    delete_leftover_logs()
    with only_writer(INDEX_LOCK_SECONDS):
        _remove_older_indexes()
    return forget_workers(session_id)


def erase(
    agent: AgentName | None, session_ids: Collection[str], words: Iterable[str], staying: Iterable[str] = ()
) -> bool:
    """Erase words from smart-fork's data about `session_ids`, except from the index, exports and snapshots.

    A word is erased if a text in `words` has it and no text in `staying`. Return True if that succeeded.
    """
    wanted = words_in(*words) - words_in(*staying)
    if not wanted or not state_home().is_dir():
        return True
    try:
        others, erased = _erase_registry(session_ids, wanted)
        _overwrite_logs(wanted, others)
        session_notes.take_back(session_ids, lambda text: bool(wanted & words_in(text)))
        with only_writer(INDEX_LOCK_SECONDS):
            remove_unfinished_files()
            delete_leftover_logs()
            _remove_older_indexes()
            for copy in filter(None, (kept_logs.find(agent, one) for one in session_ids)) if agent else ():
                _drop_kept_parts(copy, wanted)
            kept_logs.sweep_unused()
        for one in session_ids:
            sweep(snapshots.folder_of(one), 0)
    except (SmartForkError, OSError) as error:
        log.warning("what was cut may still be in %s: %s", state_home(), error)
        return False
    return erased


def _remove_older_indexes() -> None:
    """Delete indexes that were set aside because they were damaged: they may hold erased text."""
    remove_older(index_db(), datetime.now(UTC).isoformat())


def forget_workers(session_id: str) -> bool:
    """Erase the names, prompts and output of a session's workers. The registry still lists the workers.

    Return True if no trace of the erased text is left in the registry's file.
    """
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


def _drop_kept_parts(copy: kept_logs.KeptLog, wanted: frozenset[str]) -> None:
    """Delete files beside smart-fork's copy of a log, such as long outputs, that have one of the words."""
    texts = {name: b"".join(pieces(copy.folder, part)) for name, part in copy.beside.items()}
    if names := [name for name, text in texts.items() if wanted & words_in(text.decode("utf-8", "ignore"))]:
        kept_logs.leave_out(copy, names)


def _erase_registry(session_ids: Collection[str], wanted: frozenset[str]) -> tuple[list[WorkerRecord], bool]:
    """Remove the words from the registry entries of workers that belong to the sessions.

    Return the workers of other sessions, and True if no trace of the words is left in the registry's file.
    """
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


def _overwrite_logs(wanted: frozenset[str], others: Iterable[WorkerRecord]) -> None:
    """Overwrite the words in smart-fork's log files in place, since other processes may have the files open.

    Logs of `others`, the workers of other sessions, are not changed.
    """
    told = wanted - own_words()
    spared = tuple(f"{worker.id}." for worker in others)
    if not told:
        return
    for path in (state_home() / "logs").rglob("*"):
        if path.is_file() and not path.is_symlink() and not path.name.startswith(spared):
            with suppress(FileNotFoundError):
                _overwrite(path, told)


def _overwrite(path: Path, words: frozenset[str]) -> None:
    with path.open("r+b") as file:
        for found in _TOKEN.finditer(file.read()):
            if found[0].decode("utf-8", "ignore").lower() in words:
                os.pwrite(file.fileno(), b"*" * len(found[0]), found.start())


def _remove_output(worker: WorkerRecord) -> None:
    for path in (state_home() / "logs" / "workers").glob(f"{worker.id}.*"):
        path.unlink(missing_ok=True)
    if worker.log_path and is_within(resolve(Path(worker.log_path)), resolve(state_home())):
        Path(worker.log_path).unlink(missing_ok=True)


#: Seconds that `forget` waits for another process that is indexing.
FORGET_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Removal(Value):
    """The answer of ``forget``. `jsonl_path` is the agent's own log, which is unchanged.

    `erased` is true if no file of smart-fork has the session's text; it is `None` after an undo. `left` names files
    that still have the text: logs of sessions made from the forgotten one, or smart-fork's files of them.
    """

    session_id: str
    agent_type: AgentName
    forgotten: bool
    jsonl_path: str | None
    erased: bool | None = rare()
    left: tuple[UncutFile, ...] | None = rare()


def forget(reference: str) -> Removal:
    """Forget a session: delete its export (a Markdown file), copies, snapshots, passages and vectors.

    If the deletion is interrupted, the next indexing completes it.

    Raises:
        SmartForkError: no session matches, or another process is indexing for too long.
    """
    located = session_lookup.locate(reference)
    try:
        with _writing():
            _note({"forget": [located.agent, located.session_id]})  # `run_pending` makes up for a kill
            erased = forget_session(located.agent, located.session_id, opened)
    finally:
        settled = run_pending()
    done = _answer(located.agent, located.session_id, forgotten=True, erased=erased and settled)
    return replace(done, left=tuple(_left(located)) or None)


def undo_forgetting(reference: str) -> Removal:
    """Remove a session from the list of forgotten sessions. It is indexed again if the agent still has its log.

    Raises:
        Usage: the reference is too short, or matches several sessions.
        NotFound: no forgotten session matches.
    """
    with _writing():
        one = session_lookup.forgotten_session(reference)
        with opened() as store:
            store.read_forgotten()
        state_db.change("DELETE FROM forgotten WHERE agent = ? AND session_id = ?", one.agent, one.session_id)
    return _answer(one.agent, one.session_id, forgotten=False)


def _left(one: Located) -> Iterator[UncutFile]:
    descent = derived_from(Transcript(one.agent, one.path or Path(), one.session_id, ()))
    logs = [(other.agent, other.session_id, other.path) for other in descent.logs]
    lost = () if call_context.limited() else descent.without_log
    logs += [(*other, path) for other in lost for path in own_files(*other)]
    for agent, session_id, path in logs:
        if (agent, session_id) not in forgotten() and session_id != one.session_id:
            again = advice(f"smart-fork forget {session_id}", tool=f"the user can forget session {session_id}")
            yield UncutFile(str(path), f"It came of this session, and has its text: {again}.")


def _answer(agent: AgentName, session_id: str, *, forgotten: bool, erased: bool | None = None) -> Removal:
    log = READERS.original_of(agent, session_id)
    return Removal(session_id, agent, forgotten, str(log) if log else None, erased)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        with only_writer(FORGET_SECONDS):
            yield
    except IndexBusyError as error:
        raise SmartForkError("Another process is indexing", "Try again when it ends.") from error
