"""Reads a repository's history: its state at a time, its changes since a session, and its other directories.

The state at a time comes from the reflog (git's record of checkouts), or from the history of commits. A reflog is not
used if it begins too late, or if its times show that the clock was set back.

One call of git finds the changes since any number of sessions. Only committed changes on the current branch count, and
a merge counts at its own time. Paths come from logs: git reads them from standard input as literal text. Paths outside
the repository are ignored.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from indexer import repositories
from indexer.lazy import dataclass, late
from indexer.outcome import Edits
from indexer.project import Checkout, Project, Unproven, is_within, listed_worktrees, resolve, top_of
from indexer.repositories import known, recorded
from indexer.safe_files import state_home
from indexer.transcripts.model import Session
from indexer.values import Value, seconds_in, value
from smart_fork.errors import SmartForkError
from smart_fork.repository.git import Repository
from smart_fork.system.processes import Processes

#: The bytes that are read from a reflog's end, and the bytes if those are not enough.
_LOG_BYTES = (1 << 16, 1 << 22)
_LINE = late(r"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) [^\n]*> (\d{1,15}) [+-]\d{4}(?:\t([^\n]*))?")
_MOVED = late(r"checkout: moving from (\S+) to (\S+)")
_NAME = late(r"[0-9a-f]{40,64}")
_REF = "ref: refs/heads/"
#: A valid branch name that has no other meaning to git.
_PLAIN = late(r"(?!.*\.\.)(?!.*//)[\w][\w./+=-]{0,199}")


@dataclass(frozen=True, slots=True)
class Move:
    """A change of HEAD or of a branch, from the reflog: the commits before and after it, its time, and its reason."""

    before: str
    after: str
    time: int
    why: str


@dataclass(frozen=True, slots=True)
class CheckedOut:
    """The commit and branch that were checked out at a time. `branch` is empty if there was none, `None` if unknown."""

    commit: str
    branch: str | None


def moves(own: Path, since: float, branch: str = "") -> tuple[Move, ...]:
    """Return the changes of a checkout's HEAD, or of `branch` if given, from the reflog (git's record), oldest first.

    They begin with the last one at or before `since`, if known. `own` is the checkout's git folder.
    """
    if branch and not is_plain(branch):
        return ()
    file = own.joinpath("logs", *(("refs", "heads", branch) if branch else ("HEAD",)))
    found: list[Move] = []
    for most in _LOG_BYTES:
        found = list(_since(os.fsdecode(repositories.end_of(file, most)), since))
        if found and found[-1].time <= since:
            break
    return tuple(reversed(found))


def _since(text: str, since: float) -> Iterator[Move]:
    """Yield the changes in a reflog's text, newest first, up to the first one at or before `since`."""
    for line in reversed(text.split("\n")):
        if one := _LINE.fullmatch(line):
            yield Move(one[1], one[2], int(one[3]), one[4] or "")
            if int(one[3]) <= since:
                return


def checked_out(record: Sequence[Move], moment: float, branch_now: str | None) -> CheckedOut | None:
    """Return the commit and branch that were checked out at `moment`, from the changes `record`; `None` if uncertain.

    Changes in the second of `moment` count as before it. `branch_now` is the present branch.
    """
    later = next((place for place, move in enumerate(record) if move.time > moment), len(record))
    if not later or any(move.time <= moment for move in record[later:]):
        return None
    commit = record[later - 1].after
    if not commit.strip("0"):
        return None
    return CheckedOut(commit, _branch_before(record[later:], branch_now))


def branch_of(own: Path) -> str | None:
    """Return the branch that a checkout is on; empty if HEAD is detached, `None` if unknown.

    `own` is the git folder of this checkout, which for a worktree is not the repository's.
    """
    said = os.fsdecode(repositories.end_of(own / "HEAD", 1 << 12)).strip()
    if said.startswith(_REF):
        return None if said.startswith(f"{_REF}.") else said.removeprefix(_REF)
    return "" if _NAME.fullmatch(said) else None


def branch_at(directory: Path) -> str:
    """Return the branch of the checkout that contains `directory`; empty without one, or if it is unknown."""
    try:
        top = top_of(directory)
        return (branch_of(Checkout.at(top).own) or "") if top is not None else ""
    except (OSError, ValueError, Unproven):
        return ""


def is_plain(branch: str) -> bool:
    """Return True if a branch name from a log is valid, and git cannot take it for an option or an expression."""
    return bool(_PLAIN.fullmatch(branch)) and not branch.endswith((".lock", "/", "."))


def is_commit(name: str) -> bool:
    """Return True if a text from a log is a full commit hash."""
    return bool(_NAME.fullmatch(name))


def _branch_before(later: Sequence[Move], branch_now: str | None) -> str | None:
    """Return the branch that was checked out before the changes `later`: the one that their first switch left.

    Without a switch, it is the present branch, `branch_now`. Return `None` if uncertain.
    """
    for move in later:
        if found := _MOVED.match(move.why):
            return "" if _NAME.fullmatch(found[1]) else found[1]
        if move.why.startswith(("Branch: renamed", "rebase")):
            return None
    return branch_now


def dated(said: bytes) -> Iterator[tuple[str, int]]:
    """Parse git's output of ``rev-list --timestamp``: yield each commit's hash and time."""
    for line in said.decode("ascii", "replace").splitlines():
        made, _, name = line.partition(" ")
        yield name, int(made)


#: The seconds that git may take; if it takes longer, the changes are unknown.
SECONDS = 3.0
#: Git does not read a smaller number as seconds since 1970.
_FIRST = 100_000_000
_LOG = (
    "--literal-pathspecs", "log", "--stdin", "--first-parent", "--diff-merges=first-parent", "--no-renames",
    "--name-only", "--no-ext-diff", "--no-textconv", "--no-relative", "--no-follow", "--no-color", "--no-notes",
    "--no-show-signature", "-z", "--format=%x00%H %ct",
)  # fmt: skip
Key = TypeVar("Key")


@value
class Drift(Value):
    """The number of files that a session edited in the repository, how many have changed since, and their share."""

    files: int
    changed: int
    share: float


class _Commit(NamedTuple):
    """A commit of a repository's history: its hash (`name`), its time, and the files that it changes."""

    name: str
    time: int
    files: frozenset[str]


def drifts(repository: Repository, edited: Mapping[Key, Edits]) -> dict[Key, Drift]:
    """Return each session's drift (how many of the files that it edited have changed since), by the session's key.

    Missing are sessions without edits in the repository, and those before the known history.
    """
    within = tops(repository)
    files = {key: inside(edits.files, within) for key, edits in edited.items()}
    times = {key: time for key, edits in edited.items() if files[key] and (time := seconds_in(edits.until)) is not None}
    if not times:
        return {}
    asked = sorted({file for key in times for file in files[key]})
    since = [f"--since=@{int(first)}"] if (first := min(times.values())) > _FIRST else []
    lines = ("HEAD", "--", *asked, "")
    done = repository.git(*_LOG, *since, given=os.fsencode("\n".join(lines)), seconds=SECONDS)
    if not done.ok:  # nothing has been committed yet, or git is too old
        return {}
    commits = list(_commits(done.stdout))
    cut = _cut(repository)
    found = {}
    for key, time in times.items():
        later = [commit for commit in commits if commit.time > time]
        if not any(commit.name in cut for commit in later):
            changed = frozenset[str]().union(*(commit.files for commit in later))
            number = len(files[key] & changed)
            found[key] = Drift(len(files[key]), number, round(number / len(files[key]), 4))
    return found


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
    """Return the further directories of the repository at `top`: former ones, clones, and a person's choice."""
    try:
        before = repositories.noted()
        given = [old for old, new in repositories.adopted().items() if new == str(top)]
        if not before.keys() - {str(top)}:  # then nothing needs to be compared
            return tuple(given)
        one = repositories.seen(top, before.get(str(top)))
        return (*given, *(repositories.places_of(one)[0] if one else ()))
    except OSError:  # without these facts it is in one place
        return ()


def _commits(said: bytes) -> Iterator[_Commit]:
    """Parse git's output of ``log -z``, in which an empty field begins each commit."""
    fields = iter(os.fsdecode(said).split("\0"))
    name, time, files = "", 0, set[str]()
    for field in fields:
        if field:
            files.add(field.removeprefix("\n"))
            continue
        if name:
            yield _Commit(name, time, frozenset(files))
        name, _, moment = next(fields, "").partition(" ")
        time, files = int(moment or 0), set()
    if name:
        yield _Commit(name, time, frozenset(files))


def _cut(repository: Repository) -> frozenset[str]:
    """Return the hashes of the oldest commits of a shallow clone, which seem to add all their files."""
    try:
        return frozenset(Path(repository.place.common, "shallow").read_text("ascii").split())
    except (OSError, ValueError):
        return frozenset()


log = logging.getLogger(__name__)


@value
class ProjectPlace(Value):
    """A further directory of a project. `why` names the evidence, such as worktree, remote, clone, or "adopted" by a
    person.
    """

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
    """Store where the repositories of these directories are now, to recognize them after a move. Skip failures."""
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
    if one is None or one.shallow or (one.roots and before and known(Path(one.key), (before.head,))):
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


def was_checked_out(session: Session, until: str) -> CheckedOut | None:
    """Return the commit and branch that a session had checked out at the time `until`, from its directory's reflog.

    Return `None` if the reflog does not tell, or if another clone is in that directory now.
    """
    moment, begun = seconds_in(until), seconds_in(session.started)
    folder = recorded(session.cwd)
    if moment is None or folder is None:
        return None
    try:
        top = top_of(folder) if folder.is_dir() else None
        own = Checkout.at(top).own if top is not None else None
    except (OSError, ValueError, Unproven):
        return None
    if own is None:
        return None
    record = moves(own, min(moment, moment if begun is None else begun))
    first = checked_out(record, begun, None) if begun is not None else None
    if session.begun_at and (first is None or first.commit != session.begun_at):  # of another clone
        return None
    return checked_out(record, moment, branch_of(own))
