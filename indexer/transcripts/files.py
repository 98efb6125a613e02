"""Which files are logs, by listing folders and `stat` alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path

from indexer.transcripts.base import LogFile
from indexer.transcripts.model import AgentName

_LARGEST = (1 << 63) - 1


def regular_files(
    folder: Path | str, agent: AgentName, suffix: str = ".jsonl", depth: int = 0, prefix: str = "", *, part: str = ""
) -> list[LogFile]:
    """Regular files named `prefix`…`suffix` with this `part` in `folder` and `depth` levels below, by name.

    Unreadable folders, links to folders and names that are not UTF-8 are passed over.
    """
    found: list[LogFile] = []
    _list(str(folder), agent, (prefix, suffix, part), depth, found)
    return found


def regular_file(
    location: str, agent: AgentName, folders: Iterable[tuple[Path, int]], prefix: str = "", suffix: str = ".jsonl"
) -> LogFile | None:
    """The log at `location`, if `regular_files` of one of these folders (with their depths) would find it."""
    for folder, depth in folders:
        *above, name = location.removeprefix(f"{folder}/").split("/")
        if f"{folder}/{'/'.join([*above, name])}" == location and len(above) <= depth:
            try:
                is_there = _is_log(name, location, (prefix, suffix, "")) and _are_folders(str(folder), above)
                return _seen(agent, location, os.stat(location)) if is_there else None  # noqa: PTH116 - text is kept
            except (OSError, ValueError):
                return None
    return None


def odd_files(folder: Path | str, suffix: tuple[str, ...], depth: int) -> Iterator[tuple[str, str]]:
    """Yield files that are named like logs and are none, and closed folders, each with what it is.

    `folder` is looked through with `depth` levels below it.
    """
    for entry in _entries(folder):
        if entry.name.endswith(suffix):
            if kind := _odd(entry):
                yield entry.path, kind
        elif depth > 0 and entry.is_dir(follow_symlinks=False):
            if os.access(entry.path, os.R_OK | os.X_OK):
                yield from odd_files(entry.path, suffix, depth - 1)
            else:
                yield entry.path, "a folder that you may not read"


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """List a folder by name; an unreadable one is empty."""
    try:
        with os.scandir(str(folder)) as listing:
            return sorted(listing, key=attrgetter("name"))
    except OSError:
        return []


def _odd(entry: os.DirEntry[str]) -> str:
    """Say what an entry is; empty where it is a regular file."""
    try:
        if entry.is_file():
            return ""
        mode = entry.stat().st_mode
    except FileNotFoundError:
        return "a broken link" if entry.is_symlink() else ""
    except OSError as error:
        return error.strerror or "unreadable"
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def is_there(location: str) -> bool:
    """Whether there is a file at this place of a log, or one that logs are in; not where nothing can be learned."""
    return os.path.exists(location) or os.path.isfile(os.path.dirname(location))  # noqa: PTH110, PTH113, PTH120 - False on any error


def file_of(location: str) -> str:
    """The file that a log at this place is, or is in."""
    within = os.path.dirname(location)  # noqa: PTH120 - as text
    return within if os.path.isfile(within) else location  # noqa: PTH113 - False on any error


def _are_folders(path: str, below: Iterable[str]) -> bool:
    """Whether these names, one below the other, are folders and no links to any."""
    for name in below:
        path = f"{path}/{name}"
        if name in ("", ".", "..") or not stat.S_ISDIR(os.lstat(path).st_mode):
            return False
    return True


def _list(folder: str, agent: AgentName, named: tuple[str, str, str], depth: int, found: list[LogFile]) -> None:
    for entry in _entries(folder):
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth > 0:
                    _list(entry.path, agent, named, depth - 1, found)
            elif _is_log(entry.name, entry.path, named) and (file := _seen(agent, entry.path, entry.stat())):
                found.append(file)
        except OSError:
            continue


def _is_log(name: str, path: str, named: tuple[str, str, str]) -> bool:
    prefix, suffix, part = named
    return name.startswith(prefix) and name.endswith(suffix) and part in name and _is_text(path)


def _seen(agent: AgentName, path: str, info: os.stat_result) -> LogFile | None:
    if not stat.S_ISREG(info.st_mode):
        return None
    return LogFile(agent, path, *stamp_of(info))


def stamp_of(info: os.stat_result) -> tuple[int, int, int]:
    """Size, time and inode of a file, each as a number that can be stored: some file systems and clocks know larger."""
    size, mtime_ns, inode = info.st_size, info.st_mtime_ns, info.st_ino
    if mtime_ns > _LARGEST or inode > _LARGEST:
        return size, mtime_ns & _LARGEST, inode & _LARGEST
    return size, mtime_ns, inode


def _is_text(name: str) -> bool:
    """No agent writes a file name that is not UTF-8, and the index could not store it."""
    try:
        return name.isascii() or bool(name.encode())
    except UnicodeEncodeError:
        return False
