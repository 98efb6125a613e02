"""Notes the repositories that sessions worked in, and finds the other places of the one that somebody asks about."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from indexer import repositories
from indexer.files import state_home
from indexer.project import Project, resolve, top_of
from indexer.repositories import Repository, known
from indexer.values import Value, value
from smart_fork.errors import SmartForkError
from smart_fork.repository.git import opened_to_look_back
from smart_fork.system.processes import Processes

log = logging.getLogger(__name__)


@value
class Place(Value):
    """Another directory of a project. `why`: worktree, reflog, remote, clone, commits or adopted."""

    directory: str
    why: str


@value
class AboutProject(Value):
    """What makes a project what it is, and its other places; `maybe` are directories that might be its own."""

    project_path: str
    remote: str = ""
    root_commits: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    maybe: tuple[str, ...] = ()


#: How long git may take to find the first commits; the largest repositories have a million after them.
ROOTS_SECONDS = 20.0


def note(directories: Iterable[str], processes: Processes | None = None) -> None:
    """Note the repositories of these directories, as they are now. What cannot be noted is passed over."""
    tops = {top for one in directories if one and (top := top_of(Path(one)))}
    for top in sorted(tops):
        try:
            if one := look(top, processes):
                repositories.note(one)
        except OSError as error:  # a home that may only be read
            log.info("the repository in %s is not noted: %s", top, error)


def look(top: Path, processes: Processes | None = None) -> Repository | None:
    """Return the repository in the resolved directory `top`, with its root commits if git finds them.

    They are looked for once: git walks through the whole history for them.
    """
    before = repositories.noted().get(str(top))
    one = repositories.seen(top, before)
    if one is None or one.shallow or (one.roots and before and known(Path(one.key), (before.head,))):
        return one
    return replace(one, roots=_roots(top, processes or Processes()))


def recognized(project: Project) -> Project:
    """Return the project with the other places that its repository is in, or was in, and those that it was given."""
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
    """Return what is known of a project, and note its repository as it is now."""
    try:
        given = [Place(old, "adopted") for old, top in repositories.adopted().items() if top == project.root]
        one = look(resolve(project.root)) if project.git else None
        if one is None:
            return AboutProject(project.root, places=tuple(given))
        if state_home().exists():  # to list sessions makes no home
            repositories.note(one)
        found, maybe = repositories.places_of(one)
    except OSError as error:
        log.info("the places of %s are not known: %s", project.root, error)
        return AboutProject(project.root)
    places = (*given, *(Place(directory, why) for directory, why in found.items()))
    return AboutProject(project.root, one.remote, tuple(sorted(one.roots)), places, maybe)


def _roots(top: Path, processes: Processes) -> frozenset[str]:
    try:
        done = opened_to_look_back(top, processes).git(
            "rev-list", "--max-parents=0", "HEAD", "--", seconds=ROOTS_SECONDS
        )
    except SmartForkError as error:
        log.info("the first commits of %s are not known: %s", top, error)
        return frozenset()
    return frozenset(done.stdout.decode("ascii", "replace").split()) if done.ok else frozenset()
