"""What was cut is taken out of what is ours beside the index: the register of workers, their output, logs, copies.

A person's transcripts are not touched here, and snapshots neither: they are what a cut is undone with.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from indexer import kept_logs, state
from indexer.compressed import pieces
from indexer.damage import remove_older
from indexer.files import sweep
from indexer.forgotten import forgotten
from indexer.kept_logs import sweep_reading
from indexer.lost_logs import sweep_staged
from indexer.paths import index_db, state_home
from indexer.project import is_within, resolve
from indexer.transcripts.model import AgentName
from indexer.writer import only_writer
from smart_fork.agents.cuts import snapshots
from smart_fork.agents.cuts.model import Transcript
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.excise import propagation
from smart_fork.excise.following import resume
from smart_fork.excise.replacement import written_path
from smart_fork.excise.soundness import gone_of
from smart_fork.excise.traces import agent_of, own_words, related, said_by, searched, words_in
from smart_fork.excise.transcript import load_for_cut, meant
from smart_fork.finding import notes
from smart_fork.finding.engine import erased_by_engines
from smart_fork.forking import temporary_logs
from smart_fork.system.processes import Processes
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_file import has_registry

log = logging.getLogger(__name__)

#: Stands in the register in place of what a worker was told.
CUT = "[cut]"
PATIENCE = 30.0
_TOKEN = re.compile(rb"[0-9A-Za-z\x80-\xff]{5,}")


def owe(session: Transcript, session_ids: Collection[str], change: str = "") -> int:
    """Note, before anything is cut, that what is cut of these sessions is to be erased, and that the cut is to be made
    in everything that was made of the session: a kill is made up for by `settle`. The note has none of their words.

    Raises:
        OSError: it cannot be kept.
    """
    return _note({
        "path": str(session.source_path), "tool": session.tool, "session_ids": sorted(session_ids), "change": change,
    })  # fmt: skip


def owe_no_cut(note: int) -> None:
    """Note that the cut is made wherever it had to be; what was cut is still to be erased.

    Raises:
        OSError: it cannot be noted.
    """
    state.change("UPDATE owed_erasures SET facts = json_set(facts, '$.change', '') WHERE id = ?", note)


def owe_forgetting(agent: AgentName, session_id: str) -> None:
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
    session = meant(reference, tool)
    changes = [one.change for one in snapshots.cuts(written_path(session)) if one.change]
    for change in changes or [""]:
        owe(session, {session.session_id}, change)
    index = propagation.refresh(session.tool, [session.source_path])
    return settle() and (not index_db().exists() if index.erased is None else index.erased)


def settle(known: Mapping[int, Collection[str]] = MappingProxyType({})) -> bool:
    """Erase whatever is owed, but by another process that is at it. Whether nothing is any more.

    `known` are the words that notes stand for, where the caller has just read its session.
    """
    try:
        notes = state.rows("SELECT id, pid, facts FROM owed_erasures ORDER BY id")
    except OSError as error:
        log.warning("what is to be erased is not known: %s", error)
        return False
    left = [note for note, pid, facts in notes if not _settled(note, pid, orjson.loads(facts), known.get(note))]
    return not notes or (erased_by_engines() and not left)


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
        _, left = resume(session, change)
        noted = [one for one in snapshots.logged() if one.change == change and not one.beside]
        index = propagation.refresh(session.tool, [session.source_path, *(Path(one.source_path) for one in noted)])
        made, is_read = not left, index.updated or not index_db().exists()
        ids |= {one.session_id for one in noted}
    return erase(agent_of(session.tool), sorted(ids), gone_of(session).in_bytes) and made and is_read


def _forgotten(agent: AgentName, session_id: str) -> bool:
    if (agent, session_id) not in forgotten():
        return True  # it did not come to that
    snapshots.forget(session_id)
    temporary_logs.clear()
    with only_writer(PATIENCE):
        _remove_older_indexes()
    return forget_workers(session_id)


def erase(agent: AgentName | None, session_ids: Collection[str], words: Collection[str]) -> bool:
    """Take these words of these sessions out of all of ours but index, exports and snapshots. Whether that is done."""
    wanted = searched(words)
    if not wanted or not state_home().is_dir():
        return True
    try:
        _blot_logs(wanted, _take_back(session_ids, wanted))
        notes.take_back(session_ids, lambda text: bool(wanted & words_in(text)))
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
        return _erase_register()
    except (SmartForkError, OSError) as error:
        log.warning("what was cut may still be in %s: %s", state_home(), error)
        return False


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
                registry.take_back(worker.id, name=worker.id, prompt=CUT, command=[*worker.command[:1], CUT])
                _remove_output(worker)
        return registry.erase()


def _leave_out(copy: kept_logs.KeptLog, wanted: frozenset[str]) -> None:
    """What lay beside a log, such as long outputs, is kept without what has the words."""
    texts = {name: b"".join(pieces(copy.folder, part)) for name, part in copy.beside.items()}
    if names := [name for name, text in texts.items() if wanted & words_in(text.decode("utf-8", "ignore"))]:
        kept_logs.leave_out(copy, names)


def _take_back(session_ids: Collection[str], wanted: frozenset[str]) -> list[WorkerRecord]:
    """Take the words out of the register; the workers that are none of these sessions'."""
    if not has_registry():
        return []
    with Registry() as registry:
        workers = registry.workers()
        for worker in workers:
            if related(worker, session_ids) and wanted & words_in(said_by(worker)):
                registry.take_back(
                    worker.id,
                    name=worker.id if wanted & words_in(worker.name) else worker.name,
                    prompt=_without(worker.prompt, wanted),
                    command=[_without(word, wanted) for word in worker.command],
                )
    return [worker for worker in workers if not related(worker, session_ids)]


def _erase_register() -> bool:
    if not has_registry():
        return True
    with Registry() as registry:
        return registry.erase()


def _without(text: str, wanted: frozenset[str]) -> str:
    return CUT if wanted & words_in(text) else text


def _blot_logs(wanted: frozenset[str], others: Iterable[WorkerRecord]) -> None:
    """Write over the words where they stand: whoever has a log open goes on with it."""
    told = wanted - own_words()
    spared = tuple(f"{worker.id}." for worker in others)
    if not told:
        return
    for path in (state_home() / "logs").rglob("*"):
        if path.is_file() and not path.is_symlink() and not path.name.startswith(spared or "\0"):
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
