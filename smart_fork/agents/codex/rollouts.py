"""The files of Codex's rollouts (its logs): ``rollout-<local time>-<thread>[_<rollout>].jsonl``."""

from __future__ import annotations

import re
from pathlib import Path

from indexer.safe_files import COMPRESSED
from indexer.transcripts.base import LogFile, regular_files
from smart_fork.agents.codex import HOME

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


_IDS = re.compile(rf"({_UUID.pattern})(?:_({_UUID.pattern}))?$")


#: The suffixes of rollouts.
ENDINGS = (".jsonl", COMPRESSED)


_DAY_IN_NAME = re.compile(r"rollout-(\d{4})-(\d\d)-(\d\d)T")


def is_uuid(session_id: str) -> bool:
    """Return True if a text is a UUID, as the ids of sessions and of rollouts are."""
    return _UUID.fullmatch(session_id) is not None


def id_in(path: Path) -> str:
    """Return the id of the session (thread) in the file's name; empty if the name has none."""
    named = _IDS.search(path.name.partition(".")[0])
    return named[1] if named else ""


def rollout_in(path: Path) -> str:
    """Return the id of the rollout, from the file's name: the session's id, or another one after a rewind."""
    named = _IDS.search(path.name.partition(".")[0])
    return named[2] or named[1] if named else ""


def day_of(name: str) -> tuple[str, ...]:
    """Return year, month and day from the name of a rollout; empty for another name."""
    day = _DAY_IN_NAME.match(name)
    return day.groups() if day else ()


def is_moved(path: Path) -> bool:
    """Return True if a rollout (log) is not in the folder of its day: it is archived, or a copy."""
    day = day_of(path.name)
    return bool(day) and path.parent.parts[-3:] != day


def folders() -> tuple[tuple[Path, int], ...]:
    """Return the folders with rollouts, each with the number of levels of folders in it."""
    return tuple((home / name, 3) for home in HOME.folders() for name in HOME.logs)


def rollouts(part: str = "") -> list[LogFile]:
    """Return all rollouts with `part` in their names, also those that a rewind has replaced.

    Codex compresses old rollouts, and unpacks a rollout before it continues the session. While both files exist, the
    compressed one is left out.
    """
    found = [
        file
        for folder, depth in folders()
        for file in regular_files(folder, "codex", ENDINGS, depth, "rollout-", part=part)
    ]
    plain = {file.location for file in found}
    return [file for file in found if file.location.removesuffix(".zst") not in plain or not is_compressed(file.path)]


def is_compressed(log: Path) -> bool:
    """Return True if Codex has compressed this rollout."""
    return log.name.endswith(COMPRESSED)


def find_rollout(rollout_id: str) -> Path | None:
    """Return the newest file of the rollout (log) with this id (see `ForkBase`); `None` if there is none."""
    files = rollouts(rollout_id) if is_uuid(rollout_id) else ()
    found = (file for file in files if rollout_in(file.path) == rollout_id)
    newest = max(found, key=lambda file: file.mtime_ns, default=None)
    return newest and newest.path
