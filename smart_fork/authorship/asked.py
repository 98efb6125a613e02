"""The lines of code that a question is about, checked: lines, files, a commit, changes, a pull request."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from indexer.project import resolve
from indexer.shapes import dataclass
from smart_fork.authorship.blame import Line, Range, blamed, committed, merged, parsed, touched_by
from smart_fork.authorship.pulls import commits_of_pull
from smart_fork.errors import NotFound, Usage
from smart_fork.repository.git import Repository
from smart_fork.text.snippets import shown

#: Of more ranges of a patch the first are looked at.
MOST_RANGES = 200
#: A longer text names no file and no commit.
MOST_BYTES = 4096
_DIFF = ("diff", "--unified=0", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative", "HEAD", "--")


@dataclass(frozen=True, slots=True)
class Code:
    """What is asked: `lines` as PATH:FIRST-LAST, `files`, a `commit`, uncommitted `changes` or a patch, a `pull`
    request by its number.
    """

    lines: Sequence[str] = ()
    files: Sequence[str] = ()
    commit: str | None = None
    changes: bool | str | None = None
    pull: int | None = None

    def __bool__(self) -> bool:
        return bool(self.lines or self.files or self.commit or self.changes or self.pull)


def lines_of(there: Repository, folder: Path, code: Code) -> list[Line]:
    """The lines that are asked about, as they are or were; names are relative to `folder`.

    Raises:
        Usage: a path, line, commit or number is not as it may be.
        NotFound: there is no such file, line, commit or pull request.
        ProgramMissing, ProgramFailed: as `Repository.git`.
    """
    found: list[Line] = []
    ranges = [range_of(there, folder, one) for one in code.lines]
    ranges += [Range(name_of(there, folder, name)) for name in code.files]
    for one in ranges:
        found += blamed(there, one)
    if code.commit:
        found += committed(there, [_commit(there, code.commit)])
    if code.pull and (commits := commits_of_pull(there, code.pull)):
        found += committed(there, commits)
    if code.changes:
        patch = code.changes.encode("utf-8", "replace") if isinstance(code.changes, str) else there.asked(*_DIFF).stdout
        found += _changed(there, patch)
    return found


def range_of(there: Repository, folder: Path, said: str) -> Range:
    """The lines that PATH:FIRST-LAST names.

    Raises:
        Usage: it has another form, or is not in the repository.
    """
    name, first, last = parsed(said)
    return Range(name_of(there, folder, name), first, last)


def _changed(there: Repository, patch: bytes) -> Iterator[Line]:
    for one in merged(touched_by(patch))[:MOST_RANGES]:
        try:
            yield from blamed(there, one, "HEAD")
        except NotFound:  # the patch is of another state, or of a new file
            continue


def name_of(there: Repository, folder: Path, given: str) -> str:
    """A file as git names it here.

    Raises:
        Usage: it is not in the repository.
    """
    if not is_argument(given):
        raise Usage(f"no file: {shown(given)}", "Write PATH, or PATH:LINE.")
    path = folder / given
    name = os.path.relpath(resolve(path.parent) / path.name, there.top)
    if name.startswith("../"):
        raise Usage(f"{shown(given)} is not in the repository {there.top}", "Give a file of this repository.")
    return name


def is_argument(given: str) -> bool:
    """Whether git can be given this text."""
    try:
        return bool(given) and "\0" not in given and len(os.fsencode(given)) < MOST_BYTES
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _commit(there: Repository, given: str) -> str:
    name = f"{given}^{{commit}}"
    done = there.git("rev-parse", "--verify", "--quiet", "--end-of-options", name) if is_argument(given) else None
    if done is None or not done.ok:
        raise NotFound(f"no such commit: {shown(given)}", "Give a commit of this repository, such as HEAD~2.")
    return done.text
