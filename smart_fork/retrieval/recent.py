"""Recent sessions straight from the logs: no index, no model (F-132, F-136)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from indexer.forgotten import forgotten
from indexer.project import Project, is_within, project_of, resolve
from indexer.transcripts.base import AgentAdapter, LogFile
from indexer.transcripts.claude import slug
from indexer.transcripts.model import Agent, Session

log = logging.getLogger(__name__)

#: Logs looked into for one answer, and as many again whose folder says that they are of the project.
MAX_LOOKED_AT = 400


def recent_sessions(
    adapters: Sequence[AgentAdapter], project: Project | None, limit: int, *, automated: bool = False
) -> list[Session]:
    """The newest sessions of a project (all worktrees), or of all, newest first. Unreadable logs are passed over."""
    files = [file for agent in adapters for file in agent.discover() if file.size > 0]
    files.sort(key=lambda file: (-file.mtime_ns, str(file.path)))
    names: Mapping[Agent, AgentAdapter] = {agent.name: agent for agent in adapters}
    found: dict[str, Session] = {}
    gone = {session_id for _, session_id in forgotten()}
    for session in _sessions(_promising(files, project), names):
        if session.session_id in gone:
            continue
        if (project is None or in_project(session.cwd, project)) and (automated or session.origin == "person"):
            found.setdefault(session.session_id, session)
        if len(found) >= limit:
            break
    return list(found.values())


def in_project(cwd: str, project: Project) -> bool:
    """Whether a session that was started in `cwd` belongs to `project` (F-070…F-076). An unknown directory does not."""
    if not cwd:
        return False
    if is_within(resolve(cwd), project.root):
        return True
    return project.git and project_of(cwd).key == project.key


def _promising(files: Sequence[LogFile], project: Project | None) -> Iterator[LogFile]:
    """Of thousands of logs the newest, and the newest in folders that Claude Code has named after the project."""
    here = slug(project.root) if project else None
    own = 0
    for place, file in enumerate(files):
        if place < MAX_LOOKED_AT:
            yield file
        elif here and own < MAX_LOOKED_AT and file.path.parent.name.startswith(here):
            own += 1
            yield file


def _sessions(files: Iterator[LogFile], adapters: Mapping[Agent, AgentAdapter]) -> Iterator[Session]:
    for file in files:
        try:
            session = adapters[file.agent].glance(file.path)
        except Exception as error:  # noqa: BLE001 - one odd log must not hide all others
            log.warning("%s is passed over: %s", file.path, error)
            continue
        if session is not None:
            yield session
