"""Git's configuration files, read as the text that they are: nothing in one makes us run or wait for anything."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from indexer.patterns import late

#: Far more than anybody's configuration has.
MAX_BYTES = 1 << 20
_MAX_INCLUDES = 10
_BLANK = late(r"(?:[ \t\r\n]|[#;][^\n]*)*")
_SECTION = late(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\.)*)")?[ \t]*\]')
_KEY = late(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*")
_VALUE = late(r'=((?:"(?:[^"\\\n]|\\(?:.|\n))*"|\\(?:.|\r?\n)|[^"\\\n#;])*)')
_PIECE = late(r'"|\\(\r?\n|.)')
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b"}


class Setting(NamedTuple):
    """One line. `name` is ``section.key`` or ``section.subsection.key``; `value` is `None` where none was given."""

    name: str
    value: str | None


def content(file: Path, most: int = MAX_BYTES) -> str:
    """What an ordinary file of at most so many bytes says, as file names are decoded.

    A pipe or a device is not waited for.

    Raises:
        OSError: it cannot be read, is no ordinary file, or is larger.
    """
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        info = os.fstat(opened)
        if not stat.S_ISREG(info.st_mode) or info.st_size > most:
            raise OSError(f"{file} is not a regular file, or is too large")
        return os.fsdecode(os.read(opened, most))
    finally:
        os.close(opened)


def settings(file: Path) -> list[Setting]:
    """What is set in `file`, in its order; nothing where git would not read it."""
    try:
        return list(_parsed(content(file)))
    except (OSError, ValueError):
        return []


def with_included(file: Path, depth: int = 0) -> Iterator[Setting]:
    """The same, with the files that it includes whatever the repository is, in their places."""
    for one in settings(file):
        yield one
        if one.name == "include.path" and one.value and depth < _MAX_INCLUDES:
            yield from with_included(file.parent / os.path.expanduser(one.value), depth + 1)  # noqa: PTH111


def _parsed(text: str) -> Iterator[Setting]:
    section, place = "", 0
    text = text.removeprefix("\ufeff")
    while (place := _end(_BLANK.match(text, place), place)) < len(text):
        if header := _SECTION.match(text, place):
            name, inner = header.groups()
            section = name.lower() + ("" if inner is None else "." + re.sub(r"\\(.)", r"\1", inner))
            place = header.end()
            continue
        key = _KEY.match(text, place)
        if not (key and section):
            raise ValueError("it is not in git's format")
        value = _VALUE.match(text, key.end())
        place = (value or key).end()
        if text[place : place + 1] not in ("", "\n", "\r", "#", ";"):
            raise ValueError("it is not in git's format")
        yield Setting(f"{section}.{key[1].lower()}", _plain(value[1].strip(" \t\r")) if value else None)


def _plain(value: str) -> str:
    """A value without its quotation marks and escapes."""
    return _PIECE.sub(lambda found: "" if not found[1] else _ESCAPED.get(found[1], found[1].strip("\r\n")), value)


def _end(found: re.Match[str] | None, place: int) -> int:
    return found.end() if found else place
