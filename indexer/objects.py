"""Which commits a repository has, found by reading its object store alone: git need not be installed.

What a store borrows from others does not count, nor what a symbolic link leads to: whoever fills a directory could name
another's commits so.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path

NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
#: A name that git has shortened, to one that no other object of the repository begins with. Of SHA-1 alone.
_SHORTENED = re.compile(r"[0-9a-f]{7,39}")
_DIGEST_BYTES = 20
_HEADER = b"\xfftOc\x00\x00\x00\x02"
_FANOUT = 256
#: Of one first byte; no repository has so many objects.
_MOST_BYTES = 1 << 28


def known(repository: Path, names: Collection[str]) -> frozenset[str]:
    """Those of the objects `names`, whole or shortened, that the store of `repository` (its resolved ``.git``) has."""
    objects = repository / "objects"
    wanted = frozenset(name for name in names if NAME.fullmatch(name) or _SHORTENED.fullmatch(name))
    if not wanted or not _is_own(objects):
        return frozenset()
    loose = frozenset(name for name in wanted if _is_loose(objects / name[:2], name[2:]))
    packs = objects / "pack"
    if loose == wanted or not _is_own(packs):
        return loose
    try:
        return loose | _packed(packs, packs.stat().st_mtime_ns, wanted - loose)
    except OSError:
        return loose


@lru_cache(maxsize=64)
def _packed(packs: Path, _changed: int, names: frozenset[str]) -> frozenset[str]:
    """As of one state of the folder: packs come and go, and do not change."""
    found: set[str] = set()
    for entry in sorted(os.scandir(packs), key=lambda one: one.name):
        if entry.name.endswith(".idx") and entry.is_file(follow_symlinks=False):
            found.update(_listed(Path(entry.path), names - found))
    return frozenset(found)


def _listed(index: Path, names: Collection[str]) -> Iterator[str]:
    """Those that the index of one pack lists; none where it is not one that git has written since 2007."""
    try:
        with index.open("rb") as file:
            head = file.read(len(_HEADER) + 4 * _FANOUT)
            if not head.startswith(_HEADER) or len(head) != len(_HEADER) + 4 * _FANOUT:
                return
            ends = (0, *struct.unpack(f">{_FANOUT}I", head[len(_HEADER) :]))
            for name in names:
                size = len(name) // 2 if NAME.fullmatch(name) else _DIGEST_BYTES
                start, end = (ends[int(name[:2], 16) + one] * size for one in (0, 1))
                if 0 < end - start <= _MOST_BYTES:
                    file.seek(len(head) + start)
                    if _has(file.read(end - start), name, size):
                        yield name
    except OSError:
        return


def _has(table: bytes, name: str, size: int) -> bool:
    """Whether one of these digests of `size` bytes begins so."""
    begins = bytes.fromhex(name[: len(name) // 2 * 2])
    place = table.find(begins)
    while place >= 0 and (place % size or not table[place : place + size].hex().startswith(name)):
        place = table.find(begins, place + 1)
    return place >= 0


def _is_loose(folder: Path, rest: str) -> bool:
    if not _SHORTENED.fullmatch(folder.name + rest):
        return _is_own(folder / rest)
    return _is_own(folder) and folder.is_dir() and any(one.startswith(rest) for one in os.listdir(folder))  # noqa: PTH208 - as text


def _is_own(path: Path) -> bool:
    """Whether it is there, and not by a symbolic link."""
    return os.path.lexists(path) and os.path.realpath(path) == str(path)
