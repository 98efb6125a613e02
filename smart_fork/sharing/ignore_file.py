"""``.smartforkignore`` of a repository: the files whose contents do not leave this machine.

It is written as ``.gitignore`` is. It can withhold something, and nothing else: who clones a repository uploads nothing
by what is in it.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexer.transcripts.model import UsedTool
from smart_fork.agents.record_conversion import HomePlace
from smart_fork.errors import Usage
from smart_fork.snippets import quoted

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

NAME = ".smartforkignore"
WITHHELD = "[WITHHELD]"
#: More than anybody writes, of a file and of a line.
_BYTES, _LINE = 64 << 10, 300
_PATH, _DEPTH = 1_000, 64
#: What pathspec makes of a leading and of another ``**``, and of a star before another one in the same part of a path.
_BEGIN, _DEEP = "(?:.+/)?", "(?:/.+)?"
_STAR = re.compile(r"\[\^/\]\*((?:\[\^/\](?!\*)|(?!\[\^/\]\*)[^/])*?)(?=\[\^/\]\*)")
#: A class of characters, which pathspec lets match a slash; before it, what is none.
_CLASS = re.compile(r"\\.|\[\^/\]|(\[\^?\]?(?:\\.|[^\]\\])*\])", re.DOTALL)
#: Fields whose whole text is a path.
_PATHS = re.compile(r"(?i)path|file|dir|folder")
_WORDS = re.compile(r"[^\s\"'`=:;|&<>(),{}\[\]]+")
_QUOTED = re.compile(r"\"([^\"\n]{1,1000})\"|'([^'\n]{1,1000})'")
#: Lines of what a tool gave back that say of which file they are: of a search, and of a difference.
_LINES = re.compile(r"^(?:(?:\+\+\+|---|diff --git) (?:[ab]/)?)?([^\s:]{1,1000})(?=:| b/|\s*$)", re.MULTILINE)


class Ignored:
    """The files of one project that stay here."""

    def __init__(self, spec: GitIgnoreSpec, place: HomePlace) -> None:
        self._spec, self._place = spec, place

    def named_by(self, call: UsedTool, cwd: str) -> str:
        """The first of them that a call names; empty where it names none."""
        return next((path for name, text in _texts(call.given) for path in self._in(name, text, cwd)), "")

    def shown_in(self, output: str, cwd: str) -> str:
        """The first of them whose lines are in what a tool gave back, as searches and differences write it."""
        found = (line[1] for line in _LINES.finditer(output) if line.end() < len(output) and output[line.end()] in ": ")
        return next((path for path in found if self._matches(path, cwd)), "")

    def _in(self, name: str, text: str, cwd: str) -> Iterator[str]:
        words = [text] if _PATHS.search(name) else []  # may have blanks in it
        words += (found[1] or found[2] for found in _QUOTED.finditer(text))
        words += _WORDS.findall(text)
        return (word for word in dict.fromkeys(words) if self._matches(word, cwd))

    def _matches(self, path: str, cwd: str) -> bool:
        if not path or len(path) > _PATH:
            return False
        path = path.removeprefix("file://")
        if path.startswith("~/"):
            path = self._place.home + path[1:]
        path = posixpath.normpath(posixpath.join(cwd or self._place.root, path))
        root = self._place.root.rstrip("/")
        if not path.startswith(f"{root}/"):
            return False
        below = path.removeprefix(f"{root}/")
        return self._spec.match_file(below) or self._spec.match_file(f"{below}/")


def ignored(place: HomePlace) -> Ignored | None:
    """Return the ignore rules at the project's root, or `None` if there are none.

    Raises:
        Usage: It is there, and cannot be kept to.
    """
    if not place.root:
        return None
    lines = _lines(Path(place.root) / NAME)
    if not any(line.strip() and not line.startswith("#") for line in lines):
        return None
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    class Pattern(GitIgnoreSpecPattern):
        @classmethod
        def pattern_to_regex(cls, pattern: str) -> tuple[str | None, bool | None]:  # type: ignore[override]
            expression, include = super().pattern_to_regex(pattern)
            return expression and linear(expression), include

    try:
        return Ignored(GitIgnoreSpec.from_lines(Pattern, lines), place)
    except (ValueError, re.error) as error:
        raise Usage(f"{NAME} has an invalid pattern: {error}", _MEND) from error


def linear(expression: str) -> str:
    """Rewrite a pattern of pathspec's so that matching it takes time in proportion to the name, whoever wrote it.

    A star takes as little as it can and keeps that, unless it is the last one of its part of the path: where what
    follows is met first, it is met as well as anywhere. The same holds for ``**`` among the parts; the last one takes
    as much as it can, since a file counts before its folder.
    """
    said = expression.removeprefix("^")
    classed = _CLASS.sub(lambda found: rf"(?!\x2f){found[1]}" if found[1] else found[0], said)
    first, *others = _STAR.sub(r"(?>[^/]*?\1)", classed).split(_DEEP)
    begins = first.startswith(_BEGIN)
    parts = [("(?:[^/]+/)*", first.removeprefix(_BEGIN))] if begins else [("", first)]
    parts += (("(?:/[^/]+)*", one) for one in others)
    kept = [f"(?>{deep}?{one}(?=/))" if deep else one for deep, one in parts[:-1]]
    return "^" * (said != expression) + "".join([*kept, *parts[-1]])


_MEND = "Correct it, or remove it. Until then nothing is sent."


def _lines(path: Path) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Usage(f"{NAME} cannot be read: {error.strerror}", _MEND) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Usage(f"{NAME} is not a file", _MEND)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(_BYTES + 1)
    lines = data.decode("utf-8", "replace").splitlines()
    if len(data) > _BYTES:
        raise Usage(f"{NAME} has more than {_BYTES >> 10} KiB", _MEND)
    for line in lines:
        if len(line) > _LINE:
            raise Usage(f"{NAME} has a line of {len(line)} characters, {_LINE} at most: {quoted(line)}", _MEND)
    return lines


def _texts(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every text, with the name of the field that it is in."""
    if isinstance(value, str):
        yield name, value
    elif depth < _DEPTH and isinstance(value, dict):
        for key, part in value.items():
            yield from _texts(part, key, depth + 1)
    elif depth < _DEPTH and isinstance(value, list):
        for part in value:
            yield from _texts(part, name, depth + 1)
