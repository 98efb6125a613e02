"""What an edit has changed, as lines to show: from a diff of any form, or from the text before and after. Pure.

Everything is masked before it is cut or compared, each side of an edit as the file that it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, Literal

from indexer.masking import mask, mask_parts
from indexer.shapes import dataclass
from indexer.transcripts.commands import patch_of
from indexer.unchecked import list_in
from smart_fork.text.snippets import printable

LineKind = Literal["same", "added", "removed", "gap"]
#: So many lines of an edit are shown, each so long; of more characters only the number of lines is told.
MOST_LINES, MOST_COLUMNS, MOST_CHARACTERS = 400, 400, 200_000
#: Lines around a change, and how many lines are compared one by one.
_AROUND, _MOST_COMPARED = 3, 2_000
_BEGIN = "*** Begin Patch"
_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_MOVED = re.compile(r"^\*\*\* Move to: (.+)$")
_HUNK = re.compile(r"^@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@")
_HOW = {"Add": "added", "Update": "edited", "Delete": "deleted"}
#: Where a patch of git begins to tell of the next file; what it says of that; and how a name stands there.
_NEXT = re.compile(r"^(?=diff --git )", re.MULTILINE)
_TOLD = {"new file mode": "added", "deleted file mode": "deleted", "rename from ": "moved"}
_BINARIES = ("\nBinary files ", "\nGIT binary patch")
_NAMES = re.compile(r'^(?:\+\+\+|---|rename to) ("?)(?:[ab]/)?(.+?)\1\t?$')
_NOWHERE, _BINARY = "/dev/null", "a binary file"
#: So much is shown of each file of a patch that is all that there is to see.
MOST_OF_A_PATCH = 4_000
#: What tools call the text that they replace, and the one in its place; and the text of a whole file.
_PAIRS = (("old_string", "new_string"), ("old_str", "new_str"), ("oldString", "newString"))
_WHOLE = ("content", "file_text", "new_source")
_PATH = ("file_path", "notebook_path", "path", "filePath")


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line; a gap stands for lines that are not shown, and says where the file goes on."""

    kind: LineKind
    text: str


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What has become of one file. `note` says why no lines are shown, `hidden` how many more there are."""

    path: str
    how: str
    lines: tuple[DiffLine, ...] = ()
    added: int = 0
    removed: int = 0
    hidden: int = 0
    note: str = ""


def diffs_of(given: Mapping[str, Any] | str, patch: str = "") -> tuple[FileDiff, ...]:
    """What a call that edits was given to change, or by its result, `patch`, has changed."""
    for text in _patches(given):
        if _BEGIN in text:
            return tuple(_of_patch(text))
    if isinstance(given, str):
        return ()
    path = next((given[name] for name in _PATH if isinstance(given.get(name), str)), "")
    if patch and (lines := tuple(_of_unified(patch))):
        return (_shown(path, "edited", lines),)
    pairs = list(_pairs(given))
    if pairs:
        return (_compared(path, pairs),)
    whole = next((given[name] for name in _WHOLE if isinstance(given.get(name), str)), None)
    return () if whole is None else (compared(path, "", whole, how="written"),)


def diffs_in(patch: str) -> tuple[FileDiff, ...]:
    """The files of a patch as git writes it."""
    return tuple(_of_git(part) for part in _NEXT.split(patch) if part.strip())


def _of_git(part: str) -> FileDiff:
    """One file of it; what is no such patch, as it is written."""
    head, _, rest = part.partition("\n@@ ")
    if not head.startswith("diff --git "):
        return _shown("", "edited", [_line(line) for line in part.splitlines()], MOST_OF_A_PATCH)
    how = next((said for told, said in _TOLD.items() if f"\n{told}" in head), "edited")
    names = [found[2] for line in head.splitlines() if (found := _NAMES.match(line)) and found[2] != _NOWHERE]
    path = names[-1] if names else _named_twice(head.partition("\n")[0].removeprefix("diff --git "))
    diff = _shown(path, how, tuple(_of_unified(f"@@ {rest}")) if rest else (), MOST_OF_A_PATCH)
    return replace(diff, note=_BINARY) if any(told in head for told in _BINARIES) else diff


def _named_twice(said: str) -> str:
    """The name in ``a/name b/name``; of two different ones, both."""
    before, after = said[: len(said) // 2], said[len(said) // 2 + 1 :]
    return after.removeprefix("b/") if before.removeprefix("a/") == after.removeprefix("b/") else said


def compared(path: str, before: str, after: str, *, how: str = "edited") -> FileDiff:
    """How two texts differ."""
    return _compared(path, [(before, after)], how)


def _patches(given: Mapping[str, Any] | str) -> Iterator[str]:
    if isinstance(given, str):
        yield given
        return
    yield patch_of(given)
    for name in ("command", "cmd"):
        value = given.get(name)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (part for part in value if isinstance(part, str))


def _pairs(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts that are replaced, each with what stands in its place."""
    for one in (given, *list_in(given.get("edits"))):
        for old, new in _PAIRS if isinstance(one, Mapping) else ():
            if isinstance(one.get(old), str) or isinstance(one.get(new), str):
                yield str(one.get(old) or ""), str(one.get(new) or "")


def _compared(path: str, pairs: Sequence[tuple[str, str]], how: str = "edited") -> FileDiff:
    if note := _unreadable(text for pair in pairs for text in pair):
        gone, came = (sum(len(pair[side].splitlines()) for pair in pairs) for side in (0, 1))
        return FileDiff(_name(path), how, added=came, removed=gone, note=note)
    lines: list[DiffLine] = []
    for before, after in pairs:
        if lines:
            lines.append(DiffLine("gap", ""))
        lines += _differing(printable(mask(before)).splitlines(), printable(mask(after)).splitlines())
    return _cut(path, how, lines)


def _differing(before: Sequence[str], after: Sequence[str]) -> Iterator[DiffLine]:
    """The lines that differ, with some around them."""
    if len(before) + len(after) > _MOST_COMPARED:
        yield from (DiffLine("removed", line) for line in before)
        yield from (DiffLine("added", line) for line in after)
        return
    first = True
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_AROUND):
        if not first:
            yield DiffLine("gap", "")
        first = False
        for tag, old, old_end, new, new_end in group:
            if tag == "equal":
                yield from (DiffLine("same", line) for line in before[old:old_end])
                continue
            yield from (DiffLine("removed", line) for line in before[old:old_end])
            yield from (DiffLine("added", line) for line in after[new:new_end])


def _of_patch(text: str) -> Iterator[FileDiff]:
    """The files of a patch as it stands between ``*** Begin Patch`` and ``*** End Patch``."""
    path, how, lines = "", "", list[DiffLine]()
    for line in text.partition(_BEGIN)[2].partition("\n*** End Patch")[0].splitlines():
        if opening := _FILE.match(line):
            if path:
                yield _shown(path, how, lines)
            path, how, lines = opening[2].strip(), _HOW[opening[1]], []
        elif moved := _MOVED.match(line):
            how = f"moved to {printable(mask(moved[1].strip()))}, and edited"
        elif line.startswith("@@"):
            if lines or line[2:].strip():
                lines.append(DiffLine("gap", line[2:].strip()))
        elif path:
            lines.append(_line(line))
    if path:
        yield _shown(path, how, lines)


def _of_unified(text: str) -> Iterator[DiffLine]:
    """The lines of a unified diff, without what stands before its first hunk, and between the hunks of two files."""
    inside = False
    for line in text.splitlines():
        if hunk := _HUNK.match(line):
            inside = True
            yield DiffLine("gap", f"line {hunk[2]}")
        elif line.startswith(("diff --git ", "Index: ")):
            inside = False
        elif inside and line[:1] in ("+", "-", " ", ""):
            yield _line(line)


_KINDS: Mapping[str, LineKind] = {"+": "added", "-": "removed"}


def _line(line: str) -> DiffLine:
    return DiffLine(_KINDS.get(line[:1], "same"), line[1:])


def _shown(path: str, how: str, lines: Sequence[DiffLine], most: int = MOST_LINES) -> FileDiff:
    """Lines of a diff that somebody else has made: masked as the two files that they are from."""
    added, removed = _count(lines, "added"), _count(lines, "removed")
    if note := _unreadable(line.text for line in lines):
        return FileDiff(_name(path), how, added=added, removed=removed, note=note)
    texts = [line.text for line in lines]
    for side in ("added", "removed"):
        numbers = [i for i, line in enumerate(lines) if line.kind != side]
        for number, text in zip(numbers, mask_parts([texts[i] for i in numbers]), strict=True):
            texts[number] = text
    shown = [DiffLine(line.kind, printable(text)) for line, text in zip(lines, texts, strict=True)]
    return _cut(path, how, shown, most)


def _cut(path: str, how: str, lines: Sequence[DiffLine], most: int = MOST_LINES) -> FileDiff:
    lines = lines[1:] if lines and lines[0] == DiffLine("gap", "line 1") else lines
    shown = tuple(DiffLine(line.kind, _shortened(line.text)) for line in lines[:most])
    hidden = sum(line.kind != "gap" for line in lines[most:])
    return FileDiff(_name(path), how, shown, _count(lines, "added"), _count(lines, "removed"), hidden)


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_COLUMNS else f"{text[:MOST_COLUMNS]}…"


def _count(lines: Iterable[DiffLine], kind: LineKind) -> int:
    return sum(line.kind == kind for line in lines)


def _unreadable(texts: Iterable[str]) -> str:
    """Why these are not shown; empty where they are."""
    size = 0
    for text in texts:
        if "\0" in text:
            return _BINARY
        size += len(text)
    return "too large to be shown" if size > MOST_CHARACTERS else ""


def _name(path: str) -> str:
    return printable(mask(path))
