"""The commits that came of sessions, in the repository that these worked in."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

from indexer.freshness import read_changed
from indexer.paths import index_db
from indexer.project import project_of
from indexer.settings import INDEXING
from indexer.store.base import SessionRow, Store
from indexer.transcripts.lines import LOOK_SECONDS
from indexer.transcripts.model import AgentName
from indexer.writer import IndexBusyError
from smart_fork.agents.readers import READERS
from smart_fork.authorship.commits import Work, Works, commits_of
from smart_fork.conversation import CommitsMade, MadeCommit
from smart_fork.errors import IndexUnavailable, ProgramFailed, SmartForkError
from smart_fork.finding.index_access import opened
from smart_fork.repository.git import opened as repository_at
from smart_fork.repository.identity import recognized
from smart_fork.system.processes import Processes
from smart_fork.text.snippets import quoted
from smart_fork.whereabouts import where_now

#: Of more commits the newest are told, of more places the first, and so much of a subject.
MOST_COMMITS, MOST_PLACES, CHARACTERS = 20, 20, 300

log = logging.getLogger(__name__)


def commits_made(
    sessions: Collection[tuple[AgentName, str]], directory: str, processes: Processes | None = None
) -> Mapping[str, CommitsMade]:
    """The commits of each session, by its id. Nothing of those of which none is known, or without an index."""
    if not directory or not index_db().exists():
        return {}
    try:
        rows, works = works_of(sessions, directory, processes or Processes())
    except (IndexUnavailable, SmartForkError, OSError) as error:  # what was asked for is good without
        log.info("the commits of sessions are not known: %s", error)
        return {}
    if isinstance(works, ProgramFailed):
        notice = f"Its commits are not known: {works.message}"
        return {row.session_id: CommitsMade(0, (), 0, (), notice) for row in rows}
    none = Work((), 0, ())
    told = {row.session_id: _told(works.of.get(row.row, none), works) for row in rows}
    return {id_: one for id_, one in told.items() if one.count or one.notice}


def works_of(
    sessions: Collection[tuple[AgentName, str]], directory: str, processes: Processes
) -> tuple[list[SessionRow], Works | ProgramFailed]:
    """What came of these sessions, as far as the index knows them; or why git does not say.

    Raises:
        IndexUnavailable: there is no index.
        SmartForkError, OSError: the directory is in no repository that can be read.
    """
    folder = Path(where_now(directory))
    there = repository_at(folder, processes)
    with opened() as store:
        known = [(agent, id_) for agent, id_ in sessions if store.session(agent, id_)]
        _look_again(store, known)
        rows = [row for agent, id_ in known if (row := store.session(agent, id_))]
        scope = store.scope(recognized(project_of(folder)), READERS.names, automated=True)
        try:
            return rows, commits_of(rows, store, scope, there)
        except ProgramFailed as error:
            return rows, error


def _look_again(store: Store, sessions: Collection[tuple[AgentName, str]]) -> None:
    """Read what these sessions have done since they were indexed."""
    if INDEXING.is_off():
        return
    try:
        paths = [str(path) for agent, id_ in sessions for path in READERS[agent].locate(id_)]
        read_changed(store, READERS, paths, LOOK_SECONDS)
    except (IndexBusyError, OSError) as error:
        log.info("the index is used as it is: %s", error)


def _told(work: Work, works: Works) -> CommitsMade:
    commits = tuple(
        MadeCommit(
            one.commit,
            datetime.fromtimestamp(one.committed, UTC).isoformat().replace("+00:00", "Z"),
            quoted(one.subject, CHARACTERS),
            one.lines,
            one.of,
        )
        for one in work.commits[:MOST_COMMITS]
    )
    places = tuple(quoted(f"{one.name}:{one.first}-{one.last}", CHARACTERS) for one in work.places[:MOST_PLACES])
    left = [
        *([f"{works.commits_left} later commits were not looked at"] if works.commits_left else []),
        *([f"{works.files_left} files were not looked at"] if works.files_left else []),
        *([f"{more} more places in HEAD"] if (more := len(work.places) - len(places)) else []),
    ]
    return CommitsMade(len(work.commits), commits, work.today, places, "; ".join(left))
