"""Writes a cut: into the transcript, into copies, branches and forks made from it, and into the index.

If the process is killed, each file has either its old content or its new content.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path

from indexer import default_embedder, kept_logs
from indexer.embedder import ModelUnavailableError
from indexer.errors import what_failed
from indexer.lazy_compilation import dataclass
from indexer.locks import IndexBusyError, only_writer
from indexer.log_changes import VERSION, Report
from indexer.pipeline import embed_waiting, read_logs
from indexer.project import Project, project_of
from indexer.refresh import erase_owed
from indexer.safe_files import DISK, Disk, index_db, replace_file
from indexer.session_export import export_path
from indexer.store.base import Document, Reading, SessionRow, Words
from indexer.store.schema import VectorsUnavailableError
from indexer.store.sqlite import Store
from indexer.transcripts.base import UNREAD, LogFile
from indexer.transcripts.model import AgentName
from indexer.transcripts.model import Session as Conversation
from smart_fork.agents import AGENTS
from smart_fork.agents.excision import snapshots
from smart_fork.agents.excision.transcript import Transcript, TranscriptTurn
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import IndexUnavailable, SmartForkError, Usage, advice
from smart_fork.excise.answer import CutFile, IndexAfterCut, UncutFile
from smart_fork.excise.cut_plan import CutPlan
from smart_fork.excise.lookup import (
    INDEX_LOCK_SECONDS,
    dependent_logs,
    derived_from,
    keys_of,
    load_copy,
    matching_turns,
)
from smart_fork.finding.index_access import opened
from smart_fork.forking.family import Descent
from smart_fork.forking.session_use import SessionUse

NO_DESCENT = Descent()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CutChange:
    """The values that all files of one cut share, such as its id and time.

    `keys` are the keys of the removed records, and `masked` the keys of records with masked secrets. With `follows`,
    copies and the files next to a log are changed too.
    """

    keys: frozenset[str]
    masked: frozenset[str]
    command: str
    id: str
    now: datetime
    disk: Disk = DISK
    follows: bool = True


def change_of(planned: CutPlan, command: str, disk: Disk, now: datetime, *, follows: bool) -> CutChange:
    """Return the values that all files of a planned cut share, with a new id for the cut."""
    keys, masks = frozenset(keys_of(planned.removed)), frozenset(_masked(planned))
    return CutChange(keys, masks, command, uuid.uuid4().hex, now, disk, follows)


def write(
    planned: CutPlan, change: CutChange, command: str = "", descent: Descent = NO_DESCENT
) -> tuple[str | None, list[CutFile]]:
    """Cut one transcript as planned, and delete or rewrite the files next to it.

    The cut is noted in the log of snapshots, with the sessions made from this one (`descent`). Return the id of the
    snapshot with the old content, and the changed files next to the transcript.

    Raises:
        ForkRefused: the session is running, or its file has changed.
        OSError: nothing was written.
    """
    session, disk, agent = planned.session, change.disk, AGENTS.cutter_of(planned.session.tool)
    target = written_path(session)
    gone = planned.positions
    with SessionUse(session.tool, session.session_id, session.source_path).kept_out():
        snapshot = snapshots.save(
            target, session.session_id, change.now, disk=disk, files=AGENTS.cutter_of(session.tool)
        )
        note = partial(snapshots.note, session, snapshot=snapshot, target=target, now=change.now, change=change.id)
        try:
            note(
                command or change.command, size_after=written_size(session, gone, planned.edits),
                removed_ids=[turn.id for turn in planned.removed],
                seed_ids=[turn.id for turn in planned.removed if turn.id in planned.seeds],
                orphaned=sorted(planned.orphaned),
                keys=sorted(keys_of(planned.removed)), masked=_masked(planned),
                below=sorted({one.session_id for one in descent.descendants if not one.handed_over}),
                above=sorted(descent.ancestors),
                unclear=sorted({one.session_id for one in descent.unclear if not one.handed_over}),
            )  # fmt: skip
            changed = changed_beside(planned, change.keys | change.masked) if change.follows else {}
            beside = [_noted(session, path, change, len(new)) for path, new in changed.items()]
            agent.forget(session)
            write_lines(session, gone, planned.edits, disk=disk)
        except BaseException:
            with suppress(OSError):
                now = AGENTS.cutter_of(session.tool).stamp(target)
                note(snapshots.FAILED, size_after=now.size if now else 0)
            raise
        for path, new in changed.items():
            write_or_delete(path, new)
    with suppress(OSError):
        snapshots.prune(change.now)
    return snapshot.id if snapshot else None, beside


def cut_copies(session: Transcript, change: CutChange, copies: Iterable[Path]) -> tuple[list[CutFile], list[UncutFile]]:
    """Remove the records that were cut from a session from its copies and branches too.

    Return the files that were cut, and those that could not be.
    """
    done = [one for copy in copies for one in _followed(session, change, copy)]
    left = [one for one in done if isinstance(one, UncutFile)]
    return [one for one in done if isinstance(one, CutFile)], left


def finish_cut(session: Transcript, change_id: str) -> tuple[list[CutFile], list[UncutFile]]:
    """Finish an interrupted cut (removal of turns) of a session in its other files and in its copies.

    Do nothing if the session itself was not cut, or if the cut was undone. Return the cut files, and those that could
    not be cut.
    """
    made = next((one for one in snapshots.cuts(written_path(session)) if one.change == change_id), None)
    if made is None or _is_as_before(session, made):
        return [], []
    AGENTS.cutter_of(session.tool).finish(session.source_path)
    keys, masks = frozenset(made.keys), frozenset(made.masked)
    change = CutChange(keys, masks, made.command, made.change, datetime.now(UTC))
    together = [one for one in snapshots.noted_changes() if one.change == change_id]
    for one in together:
        if one.beside and not one.size_after:
            write_or_delete(Path(one.source_path), b"")
    for log in (Path(one.source_path) for one in together if not one.beside):
        for path, new in AGENTS.cutter_of(session.tool).revised(log, keys | masks).items():
            write_or_delete(path, new)
    return cut_copies(session, change, derived_from(session, keys | masks).copies)


def _followed(session: Transcript, change: CutChange, copy: Path) -> Sequence[CutFile | UncutFile]:
    other = load_copy(session, copy)
    if other is None:
        return [UncutFile(str(copy), "cannot be read")]
    same = matching_turns(other, change.keys)
    planned = CutPlan.masking(other, same, None) if change.masked else CutPlan.of(other, same)
    if not planned.changes:
        return ()
    again = advice("the next `smart-fork index run` cuts it", tool="the next index run cuts it")
    if who := SessionUse(other.tool, other.session_id, other.source_path).writer:
        return [UncutFile(str(copy), f"it is running: {who}. End it: {again}.")]
    try:
        snapshot, beside = write(planned, change, f"{change.command} (followed {session.session_id})")
    except (SmartForkError, OSError) as error:
        return [UncutFile(str(copy), f"{what_failed(error).rstrip('.')}: {again}.")]
    return [CutFile(other.session_id, str(copy), len(planned.removed), snapshot), *beside]


def changed_beside(planned: CutPlan, keys: Collection[str]) -> dict[Path, bytes]:
    """Return the new content of the files next to a transcript that a cut of the records `keys` changes.

    Empty content means: delete the file.
    """
    session = planned.session
    revised = AGENTS.cutter_of(session.tool).revised(session.source_path, keys)
    return {**dict.fromkeys(planned.beside, b""), **revised}


def write_or_delete(path: Path, new: bytes) -> None:
    """Write the new content of a file next to a log. If the content is empty, delete the file."""
    if new:
        replace_file(path, [new], like_before=True)
    else:
        path.unlink(missing_ok=True)


def _noted(session: Transcript, path: Path, change: CutChange, size: int) -> CutFile:
    """Save and note a snapshot of a file next to a log, before a cut changes the file to the size `size`."""
    snapshot = snapshots.save(path, session.session_id, change.now, disk=change.disk)
    command = f"{change.command} (beside {session.session_id})"
    snapshots.note(session, command, snapshot, path, change.now, size_after=size, change=change.id, beside="yes")
    return CutFile(session.session_id, str(path), 0, snapshot.id if snapshot else None)


def _masked(planned: CutPlan) -> list[str]:
    """Return the keys of the lines in which the plan masks secrets; for a line without a key, its turn's id."""
    turns = planned.session.turns
    own = [turns[at].key or turns[at].id for at in sorted(planned.edits)] if planned.masked else []
    return [*own, *sorted(planned.apart)]


def _is_as_before(session: Transcript, made: snapshots.NotedChange) -> bool:
    """Return True if the cut `made` was noted but not made, since the file still begins with its whole old content."""
    kept = next((one for one in snapshots.snapshots(made.session_id) if one.id == made.snapshot), None)
    return kept is not None and AGENTS.cutter_of(session.tool).begins_with(session.source_path, snapshots.content(kept))


def write_lines(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes], *, disk: Disk = DISK) -> Path:
    """Write a session's file without the turns at the positions `gone`. `edits` has new bytes of lines by position.

    Return the path of the file.
    """
    if not session.source_path.name:
        raise Usage("The session has no source path")
    if session.tool == Transcript.UNKNOWN:
        raise Usage("The agent of this transcript is not known")
    target = written_path(session)
    lines = _padded(session, gone, edits) if session.padded else _lines(session, gone, edits)
    lines = chain(AGENTS.cutter_of(session.tool).of_others(session), lines)
    AGENTS.cutter_of(session.tool).replace(target, lines, session.stamp, disk)
    return target


def written_size(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> int:
    """Return the size in bytes of the session's file after `write_lines` with these arguments."""
    if session.padded and session.stamp:
        return session.stamp.size
    own = (at for at, turn in enumerate(session.turns) if at not in gone and turn.is_line)
    size = sum(1 + (len(edits[at]) if at in edits else _length(session.turns[at])) for at in own)
    return size + sum(map(len, AGENTS.cutter_of(session.tool).of_others(session)))


def _length(turn: TranscriptTurn) -> int:
    return turn.place.end - turn.place.start if turn.place else len(turn.raw)


def written_path(session: Transcript) -> Path:
    """Return the path of the file that a cut writes: the transcript, or the target of a symbolic link.

    For a database, it is a file next to it that holds the conversations as cuts have left them.
    """
    return AGENTS.cutter_of(session.tool).written(session.source_path.resolve())


def _lines(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> Iterator[bytes]:
    staying = [(at, turn) for at, turn in enumerate(session.turns) if at not in gone and turn.is_line]
    for (position, _), raw in zip(staying, TranscriptTurn.raws(turn for _, turn in staying), strict=True):
        yield edits.get(position, raw)
        yield b"\n"


def _padded(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> Iterator[bytes]:
    """Yield the lines of a log with blanks in place of the cut text, so that every remaining line keeps its offset.

    Codex's own database and the headers of forks refer to offsets in the log.
    """
    turns = [(at, turn) for at, turn in enumerate(session.turns) if not turn.inherited]
    own = [(at, turn, turn.place) for at, turn in turns if turn.place]
    end = 0
    lines = TranscriptTurn.raws(turn for _, turn, _ in own)
    for (position, turn, (_, start, after)), raw in zip(own, lines, strict=True):
        new = edits.get(position, raw)
        if position in gone:
            new = b""
        elif len(new) > len(raw):
            owner = AGENTS.title_of(session.tool)
            raise Usage(f"Turn {turn.id} would become longer than it is: {owner}'s own records do not allow that")
        yield _blank(start - end)
        yield new.ljust(len(raw))
        end = after
    if session.stamp and session.stamp.size > end:
        yield _blank(session.stamp.size - end)


def _blank(size: int) -> bytes:
    """Return `size` bytes to fill a gap between two lines: a line end, and a line of blanks if there is room."""
    return b"\n" * size if size < 2 else b"\n" + b" " * (size - 2) + b"\n"


#: Seconds for computing vectors after a cut. The next indexing run computes the rest.
EMBED_SECONDS = 5.0


#: If more passages lack a vector, the index was incomplete before the cut, and the next indexing run computes all.
MAX_WAITING = 2048


def refresh(tool: str, paths: Iterable[Path]) -> IndexAfterCut:
    """Index some logs of one agent again from the beginning, and the logs of forks that read from them.

    Afterwards no export (a session's Markdown file), passage or vector has cut text.
    """
    changed = list(paths)
    logs = (log for path in changed for log in _logs_of(tool, path))
    wanted = list(dict.fromkeys((*logs, *dependent_logs(tool, changed))))
    for path in wanted:
        _renew_kept_copy(tool, path)
    if not index_db().exists():
        return IndexAfterCut(updated=False, note="there is no index")
    try:
        with only_writer(INDEX_LOCK_SECONDS), opened() as store:
            store.owe_erasing()
            read, known = _read_again(store, tool, wanted)
            kept_logs.sweep_unused()
            erased = erase_owed(store)
        return IndexAfterCut(updated=True, read=read, erased=erased, note=_embed(known))
    except (IndexBusyError, IndexUnavailable, OSError) as error:
        again = advice("run `smart-fork index run`, it reads them again", tool="the next smart_fork reads them again")
        return IndexAfterCut(updated=False, note=f"{what_failed(error)}: {again}")


def _logs_of(tool: str, path: Path) -> list[Path]:
    """Return the logs of the session to which the file at `path` belongs. For a log, this is the log itself."""
    found = READERS[tool].logs_of(str(path)) if tool in READERS.names else ()
    return [one.path for one in found] or [path]


def _renew_kept_copy(tool: str, path: Path) -> None:
    """Delete the export of a log's session, and renew smart-fork's copy of the log; if that fails, delete the copy.

    If the index does not know the log, nothing else would delete the export.
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


def _read_again(store: Store, tool: str, paths: list[Path]) -> tuple[int, list[tuple[int, bytes]]]:
    """Index logs again. Return their number, and a list of (chunk id, old vector) for passages with unchanged text."""
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
        now = store.session(row.agent, row.session_id) if row is not None else None
        if row is not None and now is not None and not now.path:  # no log has a prompt of it any more
            _empty(store, row, file)
    texts = _texts(store, filter(None, (_row_of(store, tool, location) for location in rows))) if known else {}
    return len(files), [(chunk, known[text]) for chunk, text in texts.items() if text in known]


def _texts(store: Store, rows: Iterable[SessionRow]) -> dict[int, str]:
    return store.texts({place.chunk for row in rows for place in store.placements_of(row.row)})


def _row_of(store: Store, tool: str, location: str) -> SessionRow | None:
    agent = _agent_of(tool, location)
    return store.session(agent, READERS[agent].id_of(Path(location))) if agent else None


def _empty(store: Store, row: SessionRow, file: LogFile) -> None:
    """Remove the text of a session from the index, since its log has no prompt left."""
    rest = Conversation(row.agent, row.session_id, file.path, (), cwd=row.cwd, root_id=row.root_id)
    project = project_of(row.repo_root) if row.repo_root else Project("", "", git=False)
    document = Document(rest, project, row.resolved_cwd, (), Words("", "", "", "", ""))
    store.save(Reading(file, VERSION, UNREAD), document)
    store.save(Reading(file, VERSION, UNREAD, skipped="it has no prompt"), None)
    export_path(row.agent, row.session_id).unlink(missing_ok=True)


def _agent_of(tool: str, location: str) -> AgentName | None:
    """Return the agent of a log: `tool`, or for an unknown tool the agent with a log at `location`; else `None`."""
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
    """Compute vectors for passages without one, if the index has vectors. Return a note if some still have none.

    `known` are vectors of passages with unchanged text, which are reused.
    """
    try:
        with only_writer(INDEX_LOCK_SECONDS, "embedding"), opened() as store:
            if not (model := store.meta("model")):
                return ""
            embedder = default_embedder.configured_embedder()
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
