"""The sessions that commits name in their messages."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from indexer.patterns import late
from smart_fork.repository.git import Repository

#: The branch on which Entire keeps the sessions that its trailers mean, here and at remotes.
CHECKPOINTS = "entire/checkpoints/v1"
#: A checkpoint has a folder for each of its sessions: of more, the first are looked at.
MOST_SESSIONS = 8
#: An agent's name before the id of its session, which stands by itself or at the end of a link.
_SESSION = late(rb"^[A-Z][A-Za-z]{1,30}-Session:[ \t]*(?:\S*/)?([A-Za-z0-9][\w-]{7,79})[ \t]*\r?$")
_CHECKPOINT = late(rb"^Entire-Checkpoint:[ \t]*([0-9a-f]{2})([0-9a-f]{10})[ \t]*\r?$")


def sessions_named(there: Repository, commits: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The ids of the sessions that the message of each of these commits names, without commits that name none.

    Raises:
        ProgramMissing, ProgramFailed: as `Repository.git`.
    """
    found: dict[str, list[str]] = {}
    checkpoints: dict[str, list[str]] = {}
    for commit, raw in _objects(there, commits).items():
        for line in raw.partition(b"\n\n")[2].split(b"\n"):
            if named := _SESSION.match(line):
                found.setdefault(commit, []).append(named[1].decode())
            elif named := _CHECKPOINT.match(line):
                checkpoints.setdefault(f"{named[1].decode()}/{named[2].decode()}", []).append(commit)
    for checkpoint, ids in _of_checkpoints(there, checkpoints).items():
        for commit in checkpoints[checkpoint]:
            found.setdefault(commit, []).extend(ids)
    return {commit: tuple(dict.fromkeys(ids)) for commit, ids in found.items()}


def _of_checkpoints(there: Repository, folders: Collection[str]) -> Mapping[str, list[str]]:
    """The sessions of each of these folders of the branch."""
    if not folders:
        return {}
    patterns = (f"refs/heads/{CHECKPOINTS}", f"refs/remotes/*/{CHECKPOINTS}")
    ref = there.git(
        "for-each-ref", "--sort=-committerdate", "--count=1", "--format=%(objectname)", "--", *patterns
    ).text
    found: dict[str, list[str]] = {}
    places = ("", *(f"{number}/" for number in range(MOST_SESSIONS)))
    names = {f"{ref}:{folder}/{place}metadata.json": folder for folder in folders for place in places}
    for name, raw in _objects(there, names).items() if ref else ():
        try:
            told: Any = json.loads(raw)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(id_ := told.get("session_id"), str):
            found.setdefault(names[name], []).append(id_)
    return found


def _objects(there: Repository, names: Iterable[str]) -> dict[str, bytes]:
    """The contents of objects by these names, without those that are not there."""
    asked = list(names)
    said = there.git("cat-file", "--batch", given=b"".join(f"{name}\n".encode() for name in asked)).stdout
    found, place = {}, 0
    for name in asked:
        head, _, _ = said[place:].partition(b"\n")
        place += len(head) + 1
        if (size := head.rpartition(b" ")[2]).isdigit():
            found[name] = said[place : place + int(size)]
            place += int(size) + 1
    return found
