"""Reads a clone: its commits, the checkpoints they name and the sessions that these hold. Fetches nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

BRANCH = "entire/checkpoints/v1"
#: What people set otherwise, and would change what git prints.
_SETTINGS = [
    part
    for setting in ("core.quotePath=false", "core.fsmonitor=false", "diff.noprefix=false", "diff.mnemonicPrefix=false",
                    "blame.ignoreRevsFile=")
    for part in ("-c", setting)
]  # fmt: skip
_TRAILER = re.compile(r"^[\s*-]*Entire-Checkpoint:\s*([0-9a-f]{12})\s*$", re.MULTILINE)
_PART = re.compile(r"([0-9a-f]{2})/([0-9a-f]{10})/(?:\d+/)?(full\.jsonl(?:\.\d+)?|metadata\.json|prompt\.txt)")
#: An id becomes the name of a file.
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{5,80}")


@dataclass(frozen=True)
class Commit:
    """A commit that names checkpoints. `time` is the committer's, in seconds."""

    id: str
    parent: str
    time: int
    checkpoints: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A session's part of a checkpoint: the files it changed until then, and the blobs of its transcript."""

    checkpoint: str
    session: str
    agent: str
    branch: str
    created: str
    files: frozenset[str]
    transcript: tuple[str, ...]
    prompt: str


@dataclass(frozen=True)
class Clone:
    """A repository that keeps its agents' sessions. A blob that is not there is empty: nothing is fetched."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ | {"GIT_NO_LAZY_FETCH": "1"})

    def run(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run git."""
        command = ["git", *_SETTINGS, "-C", str(self.path), *arguments]
        return subprocess.run(command, input=given, capture_output=True, env=dict(self.environment), check=False)

    def git(self, *arguments: str, given: bytes = b"") -> bytes:
        """Return what git prints, or nothing if it fails."""
        done = self.run(*arguments, given=given)
        return done.stdout if done.returncode == 0 else b""

    def lines(self, *arguments: str) -> list[str]:
        """Return the lines that git prints."""
        return self.git(*arguments).decode("utf-8", "replace").splitlines()

    @property
    def name(self) -> str:
        """The repository's name."""
        return self.path.resolve().name.removesuffix(".git")

    @cached_property
    def head(self) -> str:
        """The commit that the clone is at."""
        return self.git("rev-parse", "HEAD").decode().strip()

    @cached_property
    def branch(self) -> str:
        """The name of the branch that the clone is on."""
        return self.git("symbolic-ref", "--short", "HEAD").decode("utf-8", "replace").strip() or "main"

    @cached_property
    def checkpoints_ref(self) -> str:
        """The newest ref of the branch with the checkpoints, or nothing."""
        refs = self.lines("for-each-ref", "--sort=-committerdate", "--format=%(refname)", "refs/heads", "refs/remotes")
        return next((ref for ref in refs if ref.endswith(f"/{BRANCH}")), "")

    @cached_property
    def commits(self) -> tuple[Commit, ...]:
        """The commits of the main line's history that name checkpoints, oldest first."""
        log = self.git("log", "--no-merges", "--format=%x1e%H%x00%P%x00%ct%x00%B", self.head)
        records = (one.split("\0") for one in log.decode("utf-8", "replace").split("\x1e")[1:])
        named = (
            Commit(name, parents.split(" ")[0], int(time), tuple(dict.fromkeys(_TRAILER.findall(body))))
            for name, parents, time, body in records
        )
        return tuple(sorted((one for one in named if one.checkpoints), key=lambda one: one.time))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Each session's part of each checkpoint, oldest first."""
        folders: dict[str, dict[str, str]] = {}
        for line in self.lines("ls-tree", "-r", "--full-tree", self.checkpoints_ref) if self.checkpoints_ref else ():
            (_, _, blob), path = (told := line.split("\t", 1))[0].split(" "), told[1]
            if found := _PART.fullmatch(path):
                folders.setdefault(path.rpartition("/")[0], {})[found[3]] = blob
        described = self.blobs(one["metadata.json"] for one in folders.values() if "metadata.json" in one)
        told_of = (_part(folder, names, described) for folder, names in folders.items())
        return tuple(sorted((one for one in told_of if one), key=lambda one: (one.created, one.checkpoint)))

    def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Return the content of blobs, without those that are absent."""
        asked = list(dict.fromkeys(ids))
        printed = self.git("cat-file", "--batch", given="".join(f"{one}\n" for one in asked).encode())
        found, place = {}, 0
        while (end := printed.find(b"\n", place)) >= 0:
            head = printed[place:end].split()
            place = end + 1
            if len(head) == 3 and head[1] == b"blob":
                size = int(head[2])
                found[head[0].decode()] = printed[place : place + size]
                place += size + 1
        return found

    def touched_by(self, commits: Sequence[Commit]) -> Iterator[tuple[Commit, frozenset[str]]]:
        """Yield the paths that each commit changes."""
        for commit in commits:
            names = self.git("diff-tree", "-r", "-z", "--root", "--no-commit-id", "--name-only", commit.id)
            yield commit, frozenset(names.decode("utf-8", "replace").split("\0")) - {""}


def _part(folder: str, names: Mapping[str, str], described: Mapping[str, bytes]) -> Part | None:
    try:
        told: Any = json.loads(described.get(names.get("metadata.json", ""), b""))
    except ValueError:
        return None
    session = told.get("session_id") if isinstance(told, dict) else None
    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        return None
    files = told.get("files_touched")
    return Part(
        "".join(folder.split("/")[:2]),
        session,
        str(told.get("agent") or ""),
        str(told.get("branch") or ""),
        str(told.get("created_at") or ""),
        frozenset(one for one in files if isinstance(one, str)) if isinstance(files, list) else frozenset(),
        tuple(names[one] for one in sorted(names) if one.startswith("full.jsonl")),
        names.get("prompt.txt", ""),
    )
