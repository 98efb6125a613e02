"""Finds where a session worked: its directory and project, also if its log does not state them.

A log could name any directory or commit. So an inferred directory only counts if it exists, and a commit if the
project's repository has it.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from indexer.masking import Masked
from indexer.project import Project, is_within, project_of, resolve
from indexer.repositories import known_objects, recorded, successor
from indexer.session_work import worked_in
from indexer.transcripts.model import Inferred, Session
from indexer.transcripts.texts import headline_of, title_of
from smart_fork.display_text import quoted
from smart_fork.system import call_context

if TYPE_CHECKING:
    from indexer.store.base import SessionRow

_One = TypeVar("_One", Session, "SessionRow")
#: Facts that the agent itself has written count as stated.
_STATED = ("", "environment_context")
#: The characters of a directory that an error repeats: the longest possible path.
_MAX_CHARACTERS = 4096


class WorkDirectory(NamedTuple):
    """A directory as a log states it: `cwd`, which may be relative, on another machine, moved or deleted."""

    cwd: str

    @property
    def now(self) -> str:
        """Return the present place of the directory: its repository may have moved, or no longer contain it."""
        there = recorded(self.cwd) if self.cwd else None
        if there is not None and not os.path.lexists(there):
            there = successor(there) or there
        return self.cwd if there is None or there == resolve(self.cwd) else str(there)

    @property
    def is_there(self) -> bool:
        """Return True if the directory exists on this machine."""
        directory = recorded(self.cwd)
        try:
            return directory is not None and directory.is_dir()
        except OSError:  # too long
            return False

    @property
    def problem(self) -> str:
        """Return a message if the directory is unknown or not an absolute path; otherwise an empty text."""
        if not self.cwd:
            return "its directory is unknown"
        return "" if recorded(self.cwd) else f"it worked in {self.shown}, which is not an absolute path here"

    @property
    def shown(self) -> Masked:
        """Return the directory, masked and shortened for an error message."""
        return quoted(self.cwd, _MAX_CHARACTERS)

    def changed_to(self, words: str) -> str:
        """Return a shell command that runs the shell command `words` in the directory."""
        return words if self.problem else f"cd {shlex.quote(self.cwd)} && {words}"

    def is_in(self, project: Project) -> bool:
        """Return True if the directory is in `project`, its worktrees or its former places, even if deleted."""
        directory = recorded(self.cwd)
        if directory is None:
            return False
        if any(is_within(directory, one) for one in (project.root, *project.places)):
            return True
        return project.git and (project_of(directory).key == project.key or project.had_worktree(directory))


def belongs(one: Session | SessionRow, project: Project) -> bool:
    """Return True if a session worked in `project`, by its directory (stated, or inferred and existing) or commit."""
    if not isinstance(one, Session) and one.home is not None:
        return WorkDirectory(one.repo_root).is_in(project)
    return (_counts(one) and WorkDirectory(one.cwd).is_in(project)) or _has_head(one, project)


def as_guest(session: Session, project: Project) -> Session | None:
    """Return the part of a session that worked in the repository of `project`; `None` if there is no such part."""
    if not (session.turns and project.git) or session.received:
        return None
    there = {number for place, of in worked_in(session).items() if WorkDirectory(place).is_in(project) for number in of}
    turns = session.turns_in(there)
    title = title_of("", (turn.text for turn in turns if turn.prompt))
    return dataclasses.replace(session, title=title, headline=headline_of(title, turns), guest=True) if there else None


def permits(one: Session | SessionRow) -> bool:
    """Return True if the caller may read a session: if its project is known and one of the caller's."""
    allowed = call_context.projects()
    if allowed is None:
        return True
    return (_counts(one) and call_context.permits(one.cwd)) or any(_has_head(one, project) for project in allowed)


def placed(one: _One, project: Project | None) -> _One:
    """Return a session, with the directory of `project` if only its commit shows that it belongs to that project."""
    if project is None or (one.cwd and _counts(one)) or not _has_head(one, project):
        return one
    where: Inferred = "commit"
    if isinstance(one, Session):
        return dataclasses.replace(one, cwd=project.root, inferred_from=where)
    return one._replace(cwd=project.root, resolved_cwd=project.root, repo_root=project.root, inferred_from=where)


def placed_here(one: _One) -> _One:
    """Return a session. If its directory is missing or in doubt, use the caller's first project with its commit."""
    for project in _asking() if one.head else ():
        if (there := placed(one, project)) is not one:
            return there
    return one


def is_in_doubt(one: Session | SessionRow) -> bool:
    """Return True if the session's directory is inferred: neither the log nor the agent states it."""
    return one.inferred_from not in _STATED


def _asking() -> tuple[Project, ...]:
    """Return the projects that the caller may ask about; for an unlimited caller, the working directory's project."""
    allowed = call_context.projects()
    if allowed is not None:
        return allowed
    try:
        return (project_of(Path.cwd()),)
    except (OSError, ValueError):
        return ()


def _counts(one: Session | SessionRow) -> bool:
    return not is_in_doubt(one) or WorkDirectory(one.cwd).is_there


def _has_head(one: Session | SessionRow, project: Project) -> bool:
    return bool(one.head) and project.git and one.head in known_objects(Path(project.key), (one.head,))
