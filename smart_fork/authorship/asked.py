"""The lines of code that a question is about, checked: lines, files, a commit, changes, a pull request."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from indexer.objects import NAME
from indexer.project import resolve
from indexer.repositories import normalized
from indexer.shapes import dataclass
from smart_fork.authorship.blame import Line, Range, blamed, committed, merged, parsed, touched_by
from smart_fork.errors import NotFound, ProgramFailed, ProgramMissing, Usage
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


#: Of more commits of a pull request the last are looked at.
MOST_COMMITS = 200
#: How long gh may ask its server.
SECONDS = 20.0
#: Nothing that gh says of a pull request's commits is longer.
_MOST_BYTES = 1 << 22
_ASKED = ("--json", "commits,mergeCommit")
_QUIET = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
#: A repository as gh takes it, which is never an option.
_HOSTED = re.compile(r"[a-z0-9][a-z0-9.-]*/\w[\w.-]*/\w[\w.-]*", re.ASCII)
#: The remotes that a pull request can be at: of a fork its requests are at the repository that it is from.
_REMOTES = ("upstream", "origin")


class _Told(NamedTuple):
    """What gh tells: the commits, and the one that they were merged or squashed as; `answered` is whether it could."""

    commits: Sequence[str] = ()
    merged: str = ""
    answered: bool = True


def commits_of_pull(there: Repository, number: int) -> list[str]:
    """The commits of a pull request that are in this repository; the commit that they were squashed to, else. ``gh`` is
    asked, then the ref that was fetched; all that gh prints is text.

    Raises:
        NotFound: there is none of them.
        ProgramMissing, ProgramFailed: as `Repository.git`.
    """
    remote, hosted = _remote(there)
    told = _by_gh(there, hosted, number) if hosted else _Told()
    if found := _present(there, told.commits) or _present(there, [told.merged]):
        return found[-MOST_COMMITS:]
    names = (f"refs/pull/{number}/head", f"refs/remotes/*/pull/{number}/head", f"refs/remotes/*/pr/{number}")
    head = there.git("for-each-ref", "--count=1", "--format=%(objectname)", "--", *names).text
    if not head:
        fetch = f"git fetch {remote} refs/pull/{number}/head:refs/pull/{number}/head"
        hint = f"Fetch it: {fetch}" if told.answered else f"Log in to gh with `gh auth login`, or fetch it: {fetch}"
        raise NotFound(f"pull request {number} is not in this repository", hint)
    merge = there.git("rev-list", "--merges", "--ancestry-path", f"{head}..HEAD").text.split("\n")[-1]
    before = f"{merge}^1" if merge else "HEAD"
    return there.asked("rev-list", "--no-merges", f"--max-count={MOST_COMMITS}", head, f"^{before}").text.split()


def _remote(there: Repository) -> tuple[str, str]:
    """The remote that pull requests are at, and its repository as gh takes it; empty if it can be none of a host."""
    for name in _REMOTES:
        url = there.git("config", "--get", f"remote.{name}.url").text
        if url and (found := _HOSTED.fullmatch(normalized(url, there.top))):
            return name, found[0]
    return "origin", ""


def _by_gh(there: Repository, hosted: str, number: int) -> _Told:
    """Ask gh, outside of the repository: nothing that is in it is read."""
    command = ["gh", "pr", "view", str(number), "--repo", hosted, *_ASKED]
    try:
        done = there.processes.run(command, cwd=Path("/"), env={**os.environ, **_QUIET}, timeout=SECONDS)
    except (ProgramMissing, ProgramFailed, NotFound):
        return _Told()
    if not done.ok:
        return _Told(answered=False)
    try:
        said: Any = json.loads(done.stdout[:_MOST_BYTES])
    except (ValueError, RecursionError):
        return _Told()
    said = said if isinstance(said, dict) else {}
    commits = said.get("commits")
    listed = [_oid(one) for one in commits] if isinstance(commits, list) else []
    return _Told(list(filter(None, listed)), _oid(said.get("mergeCommit")))


def _oid(one: object) -> str:
    name = one.get("oid") if isinstance(one, dict) else None
    return name if isinstance(name, str) and NAME.fullmatch(name) else ""


def _present(there: Repository, names: Sequence[str]) -> list[str]:
    """Those of these commits that are in this repository."""
    given = "".join(f"{name}\n" for name in names if name).encode()
    said = there.git("cat-file", "--batch-check=%(objectname) %(objecttype)", given=given).text if given else ""
    return [line.split(" ")[0] for line in said.split("\n") if line.endswith(" commit")]
