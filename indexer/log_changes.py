"""Detection of logs that changed since they were read, and the list of sessions that a person asked to forget.

Each search looks for changes and mostly finds none. Therefore this module imports nothing that reads or stores logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from indexer import state_db
from indexer.json_values import Value
from indexer.lazy_compilation import dataclass
from indexer.masking import VERSION as MASKS_VERSION
from indexer.safe_files import checkpoints_dir
from indexer.session_export import export_names, export_path
from indexer.store.base import SeenFile
from indexer.transcripts.base import Agents, LogFile
from indexer.transcripts.model import AgentName
from indexer.transcripts.reader_state import READER_VERSION

if TYPE_CHECKING:
    import apsw

    from indexer.store.sqlite import Store


#: Increase this when an equal session would be split into other chunks.
CHUNKER_VERSION = 7
#: Increase this when an equal session would be exported differently. Every export is then written again.
EXPORT_VERSION = 2
#: The version on which the stored form of a session depends. A log read by another version is read again.
VERSION = f"{READER_VERSION}.{CHUNKER_VERSION}.{MASKS_VERSION}.{EXPORT_VERSION}"
#: The index's fact with the version that last updated the sessions without logs (see `refresh.renew_after_upgrade`).
RENEWED = "renewed"

#: A function that gets a stage, how much of it is done, and of how much. It is called where nothing is half done, and
#: may raise an error to end the work.
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Report(Value):
    """Counts of an index run. `failed` has each unreadable log's reason, and `seconds` the duration of stages.

    `erased` is False while deleted text may still be in the index's files.
    """

    files: int = 0
    unchanged: int = 0
    read: int = 0
    resumed: int = 0
    sessions: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    broken_lines: int = 0
    bytes_read: int = 0
    exported: int = 0
    removed: int = 0
    embedded: int = 0
    waiting: int = 0
    erased: bool = True
    seconds: dict[str, float] = field(default_factory=dict)


def changed_logs(store: Store, adapters: Agents, report: Report) -> list[LogFile]:
    """Return the logs that are new, changed or without their Markdown export, newest first. Each costs one `stat`.

    Deleted logs are removed from the index. A log that is merely outside the homes of `adapters` is not deleted.
    """
    there = {file.location: file for agent in adapters for file in agent.discover()}
    seen = store.seen()
    if _forget(store, seen, there, adapters, report):
        seen = store.seen()
    return _changed(there, seen, adapters, report, _without_export(store))


def named_logs(store: Store, adapters: Agents, paths: Collection[str], report: Report) -> list[LogFile]:
    """Return those logs at `paths` that are new or changed, newest first. Deleted ones are removed from the index."""
    there = {file.location: file for path in paths for agent in adapters for file in agent.logs_of(path)}
    seen = store.seen({*paths, *there})
    _forget(store, seen, there, adapters, report)
    return _changed(there, seen, adapters, report)


def _changed(
    there: Mapping[str, LogFile], seen: Mapping[str, SeenFile], adapters: Agents, report: Report,
    also: Collection[str] = (),
) -> list[LogFile]:  # fmt: skip
    """Return the new, changed and `also` logs, newest first, together with all other logs of their sessions."""
    new = {path for path, file in there.items() if seen.get(path) != (*file.stamp, VERSION) or path in also}
    if len(new) < len(there):
        twins = (adapters[there[path].agent].twins(there[path].path) for path in tuple(new))
        new |= there.keys() & {str(one) for some in twins for one in some}
    changed = [there[path] for path in new]
    report.files, report.unchanged = len(there), len(there) - len(changed)
    return sorted(changed, key=lambda file: (-file.mtime_ns, file.location))


def _forget(
    store: Store, seen: Mapping[str, SeenFile], there: Mapping[str, LogFile], adapters: Agents, report: Report
) -> bool:
    """Remove the logs in `seen` that are not in `there` from the index. Return True if any were removed."""
    gone = adapters.deleted(seen.keys() - there.keys())
    report.removed += len(gone)
    if not gone:
        return False
    if any(seen[path].version != VERSION for path in gone):
        store.set_meta(RENEWED, "")
    borrowed = store.log_rows(path for path in gone if path.startswith(f"{checkpoints_dir()}/") or Path(path).exists())
    store.forget_files(gone)
    for one in store.sessions(row for row in borrowed.values() if row is not None).values():
        # It was a repository's, and what that has no more is gone; or it never was a session.
        if not one.path and not adapters[one.agent].locate(one.session_id):
            store.forget_session(one.agent, one.session_id)
            export_path(one.agent, one.session_id).unlink(missing_ok=True)
    return True


def _without_export(store: Store) -> set[str]:
    """Return the paths of logs whose session should have an export but has none. Lists one folder per agent."""
    exports: dict[AgentName, set[str]] = {}
    missing: set[str] = set()
    for agent, session_id, path in store.sources():
        if agent not in exports:
            exports[agent] = export_names(agent)
        # Nearly all ids are their export's name as they are.
        if f"{session_id}.md" not in exports[agent] and export_path(agent, session_id).name not in exports[agent]:
            missing.add(path)
    return missing


Forgotten = dict[tuple[AgentName, str], str]


def forgotten() -> Forgotten:
    """Return the sessions that a person asked to forget, by agent and id, each with the time of the request."""
    return {(agent, session_id): at for agent, session_id, at in state_db.rows("SELECT * FROM forgotten")}


def add_forgotten(agent: AgentName, session_id: str, at: str) -> None:
    """Put a session on the list of sessions that are never indexed again. The caller holds the index's lock."""
    with state_db.changing() as db:
        db.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?, ?)", (agent, session_id, at))
        drop_notes(db, agent, session_id)


def drop_notes(db: apsw.Connection, agent: AgentName, session_id: str) -> None:
    """Delete what a person noted about a session (verdict, tags, pin), in the caller's transaction."""
    for table in ("verdicts", "marks"):
        db.execute(f"DELETE FROM {table} WHERE agent = ? AND session_id = ?", (agent, session_id))  # noqa: S608
