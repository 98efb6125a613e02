"""The ``.smartforkignore`` of a project: the files of which no content is sent to teammates."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexer.transcripts.model import UsedTool
from smart_fork.agents.portable_records import HomePlace
from smart_fork.display_text import quoted
from smart_fork.errors import Usage

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".smartforkignore"
#: The limits of an ignore file in bytes and of its lines in characters.
_BYTES, _LINE = 64 << 10, 300
_PATH = 1_000
#: pathspec's expressions for a leading and for another ``**``, and for a star before another star in a part of a path.
_BEGIN, _DEEP = "(?:.+/)?", "(?:/.+)?"
_STAR = re.compile(r"\[\^/\]\*((?:\[\^/\](?!\*)|(?!\[\^/\]\*)[^/])*?)(?=\[\^/\]\*)")
#: A class of characters, which pathspec lets match a slash. The alternatives before it are no class.
_CLASS = re.compile(r"\\.|\[\^/\]|(\[\^?\]?(?:\\.|[^\]\\])*\])", re.DOTALL)
#: The names of fields that have a path as their whole text.
_PATHS = re.compile(r"(?i)path|file|dir|folder")
_WORDS = re.compile(r"[^\s\"'`=:;|&<>(),{}\[\]]+")
_QUOTED = re.compile(r"\"([^\"\n]{1,1000})\"|'([^'\n]{1,1000})'")
#: Lines in the output of a search or a diff that name their file.
_OUTPUT_LINES = re.compile(r"^(?:(?:\+\+\+|---|diff --git) (?:[ab]/)?)?([^\s:]{1,1000})(?=:| b/|\s*$)", re.MULTILINE)
#: The deepest nesting that is searched in a call, beyond any record's.
_DEPTH = 64


class IgnoreRules:
    """The patterns of a project's ``.smartforkignore``. Contents of matching files are not sent."""

    def __init__(self, spec: GitIgnoreSpec, place: HomePlace) -> None:
        self._spec, self._place = spec, place

    def named_by(self, call: UsedTool, cwd: str) -> str:
        """Return the first file in a tool call's arguments that the project ignores; empty if there is none."""
        return next((path for name, text in _field_texts(call.given) for path in self._in(name, text, cwd)), "")

    def shown_in(self, output: str, cwd: str) -> str:
        """Return the first ignored file of which a tool output (of a search or diff) shows lines; empty if none."""
        lines = (line for line in _OUTPUT_LINES.finditer(output) if output[line.end() : line.end() + 1] in (":", " "))
        return next((line[1] for line in lines if self._matches(line[1], cwd)), "")

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


def ignore_rules(place: HomePlace) -> IgnoreRules | None:
    """Read the ``.smartforkignore`` at a project's root; `None` if there is none, or if it has no patterns.

    Raises:
        Usage: the file cannot be read, or a pattern is invalid.
    """
    if not place.root:
        return None
    lines = _ignore_lines(Path(place.root) / IGNORE_FILE)
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
        return IgnoreRules(GitIgnoreSpec.from_lines(Pattern, lines), place)
    except (ValueError, re.error) as error:
        raise Usage(f"{IGNORE_FILE} has an invalid pattern: {error}", _MEND) from error


def linear(expression: str) -> str:
    """Rewrite a regular expression of pathspec so that matching takes time in proportion to the path's length.

    In each part of the pattern between two ``/``, each star except the last becomes atomic and matches as few
    characters as possible. This changes no match: after the first place where the text behind the star matches, no
    later place is needed. Each ``**`` is rewritten in the same way. Only the last ``**`` matches as much as possible:
    a pattern for a file takes precedence over one for its folder.
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


def _ignore_lines(path: Path) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Usage(f"{IGNORE_FILE} cannot be read: {error.strerror}", _MEND) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Usage(f"{IGNORE_FILE} is not a file", _MEND)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(_BYTES + 1)
    lines = data.decode("utf-8", "replace").splitlines()
    if len(data) > _BYTES:
        raise Usage(f"{IGNORE_FILE} has more than {_BYTES >> 10} KiB", _MEND)
    for line in lines:
        if len(line) > _LINE:
            raise Usage(f"{IGNORE_FILE} has a line of {len(line)} characters, {_LINE} at most: {quoted(line)}", _MEND)
    return lines


def _field_texts(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield every text in a JSON value, with the name of the field that contains it."""
    if isinstance(value, str):
        yield name, value
    elif depth < _DEPTH and isinstance(value, dict):
        for key, part in value.items():
            yield from _field_texts(part, key, depth + 1)
    elif depth < _DEPTH and isinstance(value, list):
        for part in value:
            yield from _field_texts(part, name, depth + 1)
