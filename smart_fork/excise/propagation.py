"""Everything that came of a session: the one list that a cut, `verify`, a withdrawal and `forget` go by. And the index,
exports and kept copies, which follow.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from indexer import kept_logs
from indexer.changes import Report
from indexer.embedder import ModelUnavailableError
from indexer.failures import what_failed
from indexer.lost_logs import erase_owed
from indexer.markdown import export_path
from indexer.paths import index_db
from indexer.pipeline import embed_waiting, read_logs
from indexer.project import Project, project_of
from indexer.store.base import Document, Reading, SessionRow, Words
from indexer.store.schema import VectorsUnavailableError
from indexer.store.sqlite import SqliteStore
from indexer.transcripts.base import UNREAD, LogFile
from indexer.transcripts.model import AgentName
from indexer.transcripts.model import Session as Conversation
from indexer.versions import VERSION
from indexer.writer import IndexBusyError, only_writer
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts import titles
from smart_fork.agents.cuts.model import UNKNOWN, Tool, Transcript, TranscriptTurn
from smart_fork.agents.logs import staged_paths
from smart_fork.agents.readers import READERS
from smart_fork.errors import IndexUnavailable, SmartForkError, advice
from smart_fork.excise.answer import Refreshed
from smart_fork.excise.transcript import load_for_cut
from smart_fork.finding.index_access import opened
from smart_fork.finding.session_place import permits
from smart_fork.forking.family import Descendant, Descent, descent
from smart_fork.system import permission

log = logging.getLogger(__name__)

#: How long the index is waited for, and vectors are made; what is left over is made by the next run.
PATIENCE, EMBED_SECONDS = 30.0, 5.0
#: Where more passages have no vector than a cut makes of one session, the next run makes them.
MAX_WAITING = 2048


def descent_of(session: Transcript, keys: Collection[str] = ()) -> Descent:
    """Everything that was made of a session, as far as the client may ask about it."""
    if session.tool not in READERS.names:
        return Descent()
    agent, own = session.tool, session.source_path.resolve()
    found = descent(agent, session.session_id, session.source_path, keys)
    known = {one.path.resolve() for one in found.below}
    copied = [
        path
        for path in (*map(Path, sorted(staged_paths(session.session_id))), *others(session))
        if path.is_file() and path.resolve() not in {own, *known}
    ]
    below = (*found.below, *(Descendant(agent, session.session_id, path) for path in copied))
    below, unclear, beside = (tuple(filter(_is_permitted, some)) for some in (below, found.unclear, found.beside))
    return Descent(below, unclear, beside, found.above, found.lost)


def others(session: Transcript) -> list[Path]:
    """The session's other files, which hold what was taken back."""
    own = AGENTS.find_cutter(session.tool)
    return own.others(session.source_path) if own else []


def _is_permitted(one: Descendant) -> bool:
    """Whether the client may ask about the project that it is a copy in: then it may be cut as well."""
    if not permission.limited():
        return True
    with suppress(OSError):
        copy = READERS[one.agent].read(one.path).session
        return copy is not None and permits(copy)
    return False


def keys_of(turns: Iterable[TranscriptTurn]) -> set[str]:
    """What these records are known by in every copy, and what a title that quotes one of them is known by."""
    return {key for turn in turns for key in (turn.key, *turn.aliases, *titles.marks(turn.says)) if key}


def matching(session: Transcript, keys: Collection[str]) -> set[str]:
    """The turns of a copy that are those records, and its titles that quote one of them."""
    return {
        turn.id
        for turn in session.own
        if any(key in keys for key in (turn.key, *turn.aliases, *titles.marks(turn.repeats)))
    }


def heirs(tool: Tool, paths: Collection[Path], first: int = 0) -> list[Path]:
    """The logs that read from these files, record `first` or later ones, and theirs."""
    return agent.heirs(paths, first) if (agent := AGENTS.find_cutter(tool)) else []


def load_copy(session: Transcript, path: Path) -> Transcript | None:
    """The copy in `path`; nothing where it cannot be read."""
    try:
        return load_for_cut(session.tool, path)
    except (SmartForkError, OSError) as error:
        log.info("not followed: %s: %s", path, error)
        return None


def refresh(tool: Tool, paths: Iterable[Path]) -> Refreshed:
    """Have the index read these logs of one agent again from their first byte, and the forks that read from them: then
    no export, chunk or vector has what was cut.
    """
    changed = list(paths)
    logs = (log for path in changed for log in _logs_of(tool, path))
    wanted = list(dict.fromkeys((*logs, *heirs(tool, changed))))
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


def remove(agent: AgentName, session_id: str) -> None:
    """Take a session whose log goes out of all that is ours: export, kept copy, index.

    Raises:
        IndexBusyError: another process is indexing for too long.
        IndexUnavailable: the index cannot be opened.
    """
    export_path(agent, session_id).unlink(missing_ok=True)
    kept_logs.remove(agent, session_id)
    if not index_db().exists():
        return
    with only_writer(PATIENCE), opened() as store:
        store.forget_session(agent, session_id)
        erase_owed(store)


def held(agent: AgentName, session_id: str) -> list[Path]:
    """The export and the kept copy of a session, as far as there are any."""
    kept, export = kept_logs.find(agent, session_id), export_path(agent, session_id)
    return [*([kept.folder] if kept else []), *([export] if export.exists() else [])]


def _logs_of(tool: Tool, path: Path) -> list[Path]:
    """The logs that a change of this file has changed: not itself where what it has was taken back."""
    found = READERS[tool].logs_of(str(path)) if tool in READERS.names else ()
    return [one.path for one in found] or [path]


def _kept_again(tool: Tool, path: Path) -> None:
    """What was exported goes in any case: where the index does not know the log, nobody rewrites it just now.

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


def _read_again(store: SqliteStore, tool: Tool, paths: list[Path]) -> tuple[int, list[tuple[int, bytes]]]:
    """How many logs were read, and the vectors of passages whose texts were there before."""
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


def _row_of(store: SqliteStore, tool: Tool, location: str) -> SessionRow | None:
    agent = _agent_of(tool, location)
    return store.session(agent, READERS[agent].id_of(Path(location))) if agent else None


def _unread(store: SqliteStore, row: SessionRow) -> bool:
    """Whether nothing of the session is read from any log any more."""
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


def _agent_of(tool: Tool, location: str) -> AgentName | None:
    """Whose log it is; where the cut does not say so, that of the agent among whose logs it is. `None` for no log."""
    if tool != UNKNOWN:
        return tool if tool in READERS.names else None
    return next((agent.name for agent in READERS if agent.log_at(location)), None)


def _log_file(tool: Tool, location: str) -> LogFile | None:
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
    from indexer.models import configured_embedder

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
