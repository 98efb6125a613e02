"""A file that is ours alone in an agent's folder, known by its first line."""

from __future__ import annotations

from pathlib import Path

from smart_fork.errors import SmartForkError
from smart_fork.system import foreign_files


def install(path: Path, content: str) -> bool:
    """Write it, in the place of an older one. Whether that changed anything.

    Raises:
        SmartForkError: another file is in its place, or it cannot be written; all is as it was.
    """
    before = _read(path, content)
    if before == content:
        return False
    foreign_files.write(path, before, content)
    return True


def remove(path: Path, content: str) -> bool:
    """Delete it. Whether it was there; what is there instead and not ours stays.

    Raises:
        SmartForkError: it cannot be read, or deleted.
    """
    before = foreign_files.read(path, _by_hand(path))
    if before is None or not _is_ours(before, content):
        return False
    foreign_files.write(path, before, None)
    return True


def is_there(path: Path, content: str) -> bool:
    """Whether it is there as we would write it.

    Raises:
        SmartForkError: another file is in its place.
    """
    return _read(path, content) == content


def _read(path: Path, content: str) -> str | None:
    text = foreign_files.read(path, _by_hand(path))
    if text is None or _is_ours(text, content):
        return text
    raise SmartForkError(f"{path} is not smart-fork's, and was not changed", _by_hand(path))


def _is_ours(text: str, content: str) -> bool:
    return text.splitlines()[:1] == content.splitlines()[:1]


def _by_hand(path: Path) -> str:
    return f"Move {path} away, or add by hand what `smart-fork setup hooks --print` prints."
