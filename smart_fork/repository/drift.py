"""How much of what a session edited has changed in git since: one question to git for any number of sessions.

The history of the branch that is checked out counts, as it went: a merge counts at its own time. What is not committed
does not count. Paths come from logs: git is given them on its standard input, where nothing is an option, as literal
text; one that leads out of the repository is not asked about.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from indexer.outcome import Edits
from indexer.project import is_within, listed_worktrees
from indexer.repositories import other_places
from indexer.values import seconds_in
from smart_fork.repository.git import Repository

#: For longer nobody waits: what has changed is then not known.
SECONDS = 3.0
#: Git reads a smaller number of seconds as something else than a time.
_FIRST = 100_000_000
_LOG = (
    "--literal-pathspecs", "log", "--stdin", "--first-parent", "--diff-merges=first-parent", "--no-renames",
    "--name-only", "--no-ext-diff", "--no-textconv", "--no-relative", "--no-follow", "--no-color", "--no-notes",
    "--no-show-signature", "-z", "--format=%x00%H %ct",
)  # fmt: skip
Key = TypeVar("Key")


class Drift(NamedTuple):
    """Of the `files` that a session edited in the repository, how many have `changed` since."""

    files: int
    changed: int

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return self.changed / self.files


class _Commit(NamedTuple):
    """A commit of the history: when it was made, and the files in which it differs from the one before."""

    name: str
    time: int
    files: frozenset[str]


def drifts(repository: Repository, edited: Mapping[Key, Edits]) -> dict[Key, Drift]:
    """The drift of each session, by its key. Those are left out that edited nothing there, or of which it is not known:
    the history does not go back so far, or there is none.

    Raises:
        ProgramMissing, ProgramFailed: as `Repository.git`.
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
            found[key] = Drift(len(files[key]), len(files[key] & changed))
    return found


def tops(repository: Repository) -> list[str]:
    """Where the files of the repository are or were: its working directories and former places, the innermost first."""
    place = repository.place
    main = [place.common.parent] if place.common.name == ".git" else []
    formerly = (one for top in {place.top, *main} for one in other_places(top))
    found = {str(top) for top in (place.top, *main, *listed_worktrees(place.common), *formerly)}
    return sorted(found, key=len, reverse=True)


def inside(files: Collection[str], within: Collection[str]) -> frozenset[str]:
    """The paths below one of these directories, relative to it. They were made without ``..``, which text can hold."""
    found = set()
    for file in files:
        top = next((top for top in within if file != top and is_within(file, top)), None)
        name = "" if top is None else file[len(top.rstrip("/")) + 1 :]
        if name and name.isprintable() and os.path.normpath(file) == file:
            found.add(name)
    return frozenset(found)


def _commits(said: bytes) -> Iterator[_Commit]:
    """Each begins with an empty field, which no name of a file is."""
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
    """The commits at which a shallow clone ends: all of their files look as if they had been added there."""
    try:
        return frozenset(Path(repository.place.common, "shallow").read_text("ascii").split())
    except (OSError, ValueError):
        return frozenset()
