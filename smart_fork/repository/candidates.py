"""Where a file that is gone may lie now, in a repository of so many files that git would look at them for long."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

#: With more files in its index, git is not asked to compare all that came with all that went.
MANY_FILES = 10_000
#: More files of one name or content say nothing.
_MOST = 8
_HEADER = 12


def are_many(own: Path) -> bool:
    """Whether a checkout, of which git keeps `own`, has more files than git compares in a moment, or may have."""
    try:
        with (own / "index").open("rb") as file:
            header = file.read(_HEADER)
    except OSError:
        return True
    return header[:4] != b"DIRC" or int.from_bytes(header[8:], "big") > MANY_FILES


def candidates(listed: bytes, gone: Mapping[str, str]) -> frozenset[str]:
    """Of the files that ``ls-files -z -s`` lists, those with the name, or the content, of one that is gone.

    `gone` says of each what its content was called.
    """
    found: set[str] = set()
    for name, content in gone.items():
        base = os.fsencode(name).rpartition(b"/")[2]
        for mark in (b"/" + base + b"\0", b"\t" + base + b"\0", b" " + content.encode("ascii", "replace") + b" 0\t"):
            these = list(_paths(listed, mark))
            found.update(these if len(these) <= _MOST else ())
    return frozenset(found - gone.keys())


def _paths(listed: bytes, mark: bytes) -> Iterator[str]:
    """The paths of the entries that have `mark`, up to one more than count."""
    place, seen = listed.find(mark), 0
    while place >= 0 and seen <= _MOST:
        begin = listed.rfind(b"\0", 0, place) + 1
        end = listed.find(b"\0", max(place, listed.find(b"\t", begin)))
        entry = listed[begin : end if end >= 0 else len(listed)]
        yield os.fsdecode(entry.partition(b"\t")[2])
        seen += 1
        place = listed.find(mark, end if end >= 0 else len(listed))
