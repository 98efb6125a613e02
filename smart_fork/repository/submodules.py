"""The submodules of a checkout. Each is looked into as a repository of its own, if its `.git` is believed."""

from __future__ import annotations

import os
from collections.abc import Mapping

from indexer.shapes import dataclass
from smart_fork.errors import ProgramFailed
from smart_fork.repository.git import Repository, opened

#: How git lists a submodule that is checked out, or could be.
_SHOWN = "H 160000 "


@dataclass(frozen=True, slots=True)
class Submodule:
    """One, by its path; `commit` is what is checked out in it, or the one in the index where that cannot be told.

    `folder` says whether there is a directory at all, `changed` whether it differs from the index, or may.
    """

    name: str
    commit: str
    folder: bool
    changed: bool


def submodules(there: Repository, env: Mapping[str, str] | None = None) -> list[Submodule]:
    """Those in the index, but for those outside of a sparse checkout. Nothing of what they configure is run.

    Raises:
        ProgramFailed: git failed.
    """
    found = []
    for entry in os.fsdecode(there.asked("ls-files", "-z", "-t", "--stage", env=env).stdout).split("\0"):
        facts, _, name = entry.partition("\t")
        if facts.startswith(_SHOWN):
            found.append(_looked_at(there, name, facts.split(" ")[2]))
    return found


def _looked_at(there: Repository, name: str, commit: str) -> Submodule:
    path = there.top / name
    if path.resolve() != path or not path.is_dir():
        return Submodule(name, commit, folder=False, changed=False)
    if not os.path.lexists(path / ".git"):
        return Submodule(name, commit, folder=True, changed=False)
    try:
        inner = opened(path, there.processes)
        head = inner.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").text
        how = ("status", "--porcelain", "-z", "--untracked-files=normal", "--no-renames", "--ignore-submodules=dirty")
        files = inner.asked(*how).stdout
        changed = head != commit or bool(files) or any(one.changed for one in submodules(inner))
    except ProgramFailed:
        return Submodule(name, commit, folder=True, changed=True)
    return Submodule(name, head or commit, folder=True, changed=changed)
