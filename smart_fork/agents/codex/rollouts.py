"""The files of Codex's rollouts, and what their names say: ``rollout-<local time>-<thread>[_<rollout>].jsonl``."""

from __future__ import annotations

import re
from pathlib import Path

from indexer.files import COMPRESSED
from indexer.transcripts.base import LogFile, regular_files
from smart_fork.agents.codex import HOME

_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IDS = re.compile(rf"({_ID.pattern})(?:_({_ID.pattern}))?$")
#: How the names of its files end.
ENDINGS = (".jsonl", COMPRESSED)
_DAY = re.compile(r"rollout-(\d{4})-(\d\d)-(\d\d)T")


def is_id(session_id: str) -> bool:
    """Return whether a rollout may be named after it."""
    return _ID.fullmatch(session_id) is not None


def id_in(path: Path) -> str:
    """The id of the session that the file is named after; empty where it is not."""
    named = _IDS.search(path.name.partition(".")[0])
    return named[1] if named else ""


def rollout_in(path: Path) -> str:
    """The id of the rollout in the file: the session's own, or another one after a rewind."""
    named = _IDS.search(path.name.partition(".")[0])
    return named[2] or named[1] if named else ""


def day_of(name: str) -> tuple[str, ...]:
    """Year, month and day that the name of a rollout says; nothing where it is none's."""
    day = _DAY.match(name)
    return day.groups() if day else ()


def is_moved(path: Path) -> bool:
    """Codex files each session under the day that its name says; what it archives it moves."""
    day = day_of(path.name)
    return bool(day) and path.parent.parts[-3:] != day


def folders() -> tuple[tuple[Path, int], ...]:
    """See `AgentAdapter.folders`."""
    return tuple((home / name, 3) for home in HOME.folders() for name in HOME.logs)


def rollouts(part: str = "") -> list[LogFile]:
    """All files of rollouts with this part in their names, also of those that a rewind has replaced.

    Codex compresses old ones, and unpacks those that it goes on with: for a moment both files are there.
    """
    found = [
        file
        for folder, depth in folders()
        for file in regular_files(folder, "codex", ENDINGS, depth, "rollout-", part=part)
    ]
    plain = {file.location for file in found}
    return [file for file in found if file.location.removesuffix(".zst") not in plain or not is_compressed(file.path)]


def is_compressed(log: Path) -> bool:
    """Return whether Codex has compressed this rollout."""
    return log.name.endswith(COMPRESSED)


def find_rollout(rollout_id: str) -> Path | None:
    """The newest file of one rollout, by the id that a `ForkBase` names."""
    files = rollouts(rollout_id) if is_id(rollout_id) else ()
    found = (file for file in files if rollout_in(file.path) == rollout_id)
    newest = max(found, key=lambda file: file.mtime_ns, default=None)
    return newest and newest.path
