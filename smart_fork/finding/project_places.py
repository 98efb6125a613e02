"""Finds the directories that belong to a repository: worktrees, former places, clones, and adopted directories.

Paths outside the repository are ignored.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from indexer import repositories
from indexer.json_values import Value, value
from indexer.project import Project, is_within, listed_worktrees, resolve, top_of
from indexer.repositories import known_objects
from indexer.safe_files import state_home
from smart_fork.errors import SmartForkError
from smart_fork.finding.git import Repository
from smart_fork.system.processes import Processes


def tops(repository: Repository) -> list[str]:
    """Return the top directories of the repository and its worktrees, also former ones; inner before outer ones."""
    place = repository.place
    main = [place.common.parent] if place.common.name == ".git" else []
    formerly = (one for top in {place.top, *main} for one in _other_places(top))
    found = {str(top) for top in (place.top, *main, *listed_worktrees(place.common), *formerly)}
    return sorted(found, key=len, reverse=True)


def inside(files: Collection[str], within: Collection[str]) -> frozenset[str]:
    """Return the `files` below one of the directories `within`, relative to it, without paths that contain ``..``."""
    found = set()
    for file in files:
        top = next((top for top in within if file != top and is_within(file, top)), None)
        name = "" if top is None else file[len(top.rstrip("/")) + 1 :]
        if name and name.isprintable() and os.path.normpath(file) == file:
            found.add(name)
    return frozenset(found)


def _other_places(top: Path) -> tuple[str, ...]:
    """Return further directories of the repository at `top`: former ones, clones, and those that a person adopted."""
    try:
        before = repositories.noted()
        given = [old for old, new in repositories.adopted().items() if new == str(top)]
        if not before.keys() - {str(top)}:  # then nothing needs to be compared
            return tuple(given)
        one = repositories.seen(top, before.get(str(top)))
        return (*given, *(repositories.places_of(one)[0] if one else ()))
    except OSError:  # without these facts it is in one place
        return ()


log = logging.getLogger(__name__)


@value
class ProjectPlace(Value):
    """A further directory of a project. `why` is worktree, reflog, remote, clone, commits or adopted."""

    directory: str
    why: str


@value
class AboutProject(Value):
    """The facts about a project: its remote and its root commits, which identify it, and its further directories.

    `maybe` are directories that no longer exist, and may have been the project's (see `repositories.places_of`).
    """

    project_path: str
    remote: str = ""
    root_commits: tuple[str, ...] = ()
    places: tuple[ProjectPlace, ...] = ()
    maybe: tuple[str, ...] = ()


#: The seconds git may take to find root commits; the largest repositories have a million commits after them.
ROOTS_SECONDS = 20.0


def note(directories: Iterable[str], processes: Processes | None = None) -> None:
    """Store facts about the repositories of `directories`, to recognize them after a move. Skip failures."""
    tops = {top for one in directories if one and (top := top_of(Path(one)))}
    for top in sorted(tops):
        try:
            if one := look(top, processes):
                repositories.note(one)
        except OSError as error:  # a home that may only be read
            log.info("the repository in %s is not noted: %s", top, error)


def look(top: Path, processes: Processes | None = None) -> repositories.SeenRepository | None:
    """Return the facts about the repository with the top directory `top`, a resolved path, with its root commits.

    git walks through the whole history to find those, so known ones are not looked up again.
    """
    before = repositories.noted().get(str(top))
    one = repositories.seen(top, before)
    if one is None or one.shallow or (one.roots and before and known_objects(Path(one.key), (before.head,))):
        return one
    return replace(one, roots=_roots(top, processes or Processes()))


def recognized(project: Project) -> Project:
    """Return the project with its further directories: former ones, clones, and those that a person assigned."""
    try:
        if not repositories.noted().keys() - {project.root} and not repositories.adopted():
            return project
    except OSError as error:
        log.info("the places of %s are not known: %s", project.root, error)
        return project
    about = described(project)
    places = tuple(one.directory for one in about.places)
    return replace(project, places=places, maybe=about.maybe) if places or about.maybe else project


def described(project: Project) -> AboutProject:
    """Return the facts about a project. Also store where its repository is now, to recognize it after a move."""
    try:
        given = [ProjectPlace(old, "adopted") for old, top in repositories.adopted().items() if top == project.root]
        one = look(resolve(project.root)) if project.git else None
        if one is None:
            return AboutProject(project.root, places=tuple(given))
        if state_home().exists():  # to list sessions makes no home
            repositories.note(one)
        found, maybe = repositories.places_of(one)
    except OSError as error:
        log.info("the places of %s are not known: %s", project.root, error)
        return AboutProject(project.root)
    places = (*given, *(ProjectPlace(directory, why) for directory, why in found.items()))
    return AboutProject(project.root, one.remote, tuple(sorted(one.roots)), places, maybe)


def _roots(top: Path, processes: Processes) -> frozenset[str]:
    try:
        done = Repository.open_to_look_back(top, processes).git(
            "rev-list", "--max-parents=0", "HEAD", "--", seconds=ROOTS_SECONDS
        )
    except SmartForkError as error:
        log.info("the first commits of %s are not known: %s", top, error)
        return frozenset()
    return frozenset(done.stdout.decode("ascii", "replace").split()) if done.ok else frozenset()


def relative(file: str, tops: Collection[str]) -> str:
    """Return a file's path relative to the repository, of which `tops` are directories; other paths are unchanged.

    A file in a worker's worktree counts as a file of the repository that contains the worktree.
    """
    top = next((top for top in tops if file.startswith(f"{top.rstrip('/')}/")), None)
    name = file if top is None else file[len(top.rstrip("/")) + 1 :]
    return name.split("/", 2)[-1] if name.startswith(f"{Repository.WORKTREES}/") else name
