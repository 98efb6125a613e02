"""The commits of a pull request: as ``gh`` tells them, else by the ref that was fetched. All that gh prints is text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from indexer.objects import NAME
from indexer.repositories import normalized
from smart_fork.errors import NotFound, ProgramFailed, ProgramMissing
from smart_fork.repository.git import Repository

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
    """The commits of a pull request that are in this repository; the commit that they were squashed to, else.

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
