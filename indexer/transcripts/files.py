"""Which files are logs, by listing folders and `stat` alone."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from indexer.transcripts.base import LogFile
from indexer.transcripts.model import AgentName

#: How the name of a log ends that its agent has compressed.
COMPRESSED = ".jsonl.zst"
_LARGEST = (1 << 63) - 1
_UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#: An id, after a rewind with another one; what agents put before one; and names without any.
_ID, _BEFORE = re.compile(rf"{_UUID}(?:_{_UUID})?"), re.compile(r"[a-z]+-\d{4}-[\dT-]+-|\d[\dTZ.:-]*_|T-|")
_PLAIN = re.compile(r"\w[\w-]*")


def is_name(stem: str) -> bool:
    """Return whether a log can have this name: its session's, and not one that a program has made of it.

    Sync and backup programs leave copies: ``ID (conflicted copy)``, ``ID.sync-conflict-1``, ``ID-HOST``, ``ID 2``.
    """
    if found := _ID.search(stem):
        return found.end() == len(stem) and _BEFORE.fullmatch(stem, 0, found.start()) is not None
    return _PLAIN.fullmatch(stem) is not None


def regular_files(
    folder: Path | str,
    agent: AgentName,
    suffix: str | tuple[str, ...] = ".jsonl",
    depth: int = 0,
    prefix: str = "",
    *,
    part: str = "",
) -> list[LogFile]:
    """Regular files named `prefix`…`suffix` with this `part` in `folder` and `depth` levels below, by name.

    Unreadable folders, names that are not UTF-8, and those that are no session's (see `is_name`), are passed over.
    """
    found: list[LogFile] = []
    for _, _, entries in _walk(str(folder), depth):
        for entry in entries:
            try:
                if _is_log(entry.name, entry.path, (prefix, suffix, part)):
                    found += filter(None, [_seen(agent, entry.path, entry.stat())])
            except OSError:
                continue
    return found


def regular_file(
    location: str,
    agent: AgentName,
    folders: Iterable[tuple[Path, int]],
    prefix: str = "",
    suffix: str | tuple[str, ...] = ".jsonl",
) -> LogFile | None:
    """The log at `location`, if `regular_files` of one of these folders (with their depths) would find it."""
    for folder, depth in folders:
        *above, name = location.removeprefix(f"{folder}/").split("/")
        if f"{folder}/{'/'.join([*above, name])}" == location and len(above) <= depth:
            try:
                is_there = _is_log(name, location, (prefix, suffix, "")) and _is_listed(str(folder), above, depth)
                return _seen(agent, location, os.stat(location)) if is_there else None  # noqa: PTH116 - text is kept
            except (OSError, ValueError):
                return None
    return None


def odd_files(folder: Path | str, suffix: tuple[str, ...], depth: int) -> Iterator[tuple[str, str]]:
    """Yield files that are named like logs and are none, and folders that are not looked into, each with the reason.

    `folder` is looked through with `depth` levels below it.
    """
    walked = list(_walk(str(folder), depth))
    paths = {path for path, _, _ in walked}
    for path, below, entries in walked:
        if path != str(folder) and not os.access(path, os.R_OK | os.X_OK):
            yield path, "a folder that you may not read"
        for entry in entries:
            if entry.name.endswith(suffix) or (below > 0 and entry.is_symlink() and not entry.is_dir()):
                if kind := _odd(entry):
                    yield entry.path, kind
            elif below > 0 and entry.is_symlink() and entry.path not in paths:
                yield entry.path, "a link to a folder that is listed already, or that these logs are in"


def folders_of(folder: str, depth: int) -> Iterator[str]:
    """The folder and those in which `regular_files` looks below it."""
    return (path for path, _, _ in _walk(folder, depth))


def _walk(folder: str, depth: int) -> Iterator[tuple[str, int, list[os.DirEntry[str]]]]:
    """Each folder, how many levels below it count, and its entries. A linked folder comes last, and only if no other
    way has led to it, by device and inode: people move a project or a year to another disk, and link in circles. None
    leads above `folder`, to the whole disk.
    """
    links: list[tuple[str, int]] = []
    walked: list[str] = []
    seen: set[tuple[int, int]] = set()

    def listed(path: str, below: int) -> Iterator[tuple[str, int, list[os.DirEntry[str]]]]:
        entries = _entries(path)
        walked.append(path)
        yield path, below, entries
        for entry in entries if below > 0 else ():
            if entry.is_symlink():
                links.append((entry.path, below - 1))
            elif entry.is_dir(follow_symlinks=False) and not (seen and _is_known(entry.path, seen)):
                yield from listed(entry.path, below - 1)

    yield from listed(folder, depth)
    for path in (*walked, *map(str, Path(os.path.realpath(folder)).parents)) if links else ():
        _is_known(path, seen)
    for path, below in links:  # it grows meanwhile
        if os.path.isdir(path) and not _is_known(path, seen):  # noqa: PTH112 - False on any error
            yield from listed(path, below)


def _is_known(path: str, seen: set[tuple[int, int]]) -> bool:
    """Whether a folder was seen; from now on it was."""
    try:
        info = os.stat(path)  # noqa: PTH116 - as text
    except OSError:
        return True
    is_new = (one := (info.st_dev, info.st_ino)) not in seen
    seen.add(one)
    return not is_new


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


def _is_listed(folder: str, below: Sequence[str], depth: int) -> bool:
    """Whether these names, one below the other, are folders that are looked into."""
    path, linked = folder, False
    for name in below:
        path = f"{path}/{name}"
        mode = os.lstat(path).st_mode
        linked |= stat.S_ISLNK(mode)
        if name in ("", ".", "..") or not (stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            return False
    return not linked or path in folders_of(folder, depth)


def _is_log(name: str, path: str, named: tuple[str, str | tuple[str, ...], str]) -> bool:
    prefix, suffix, part = named
    is_so = name.startswith(prefix) and name.endswith(suffix) and part in name
    return is_so and is_name(name.removesuffix(".zst").rpartition(".")[0]) and _is_text(path)


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
