"""The lines that a call adds to files, as keyed hashes: who wrote a line is found by them, and the line is not kept.

A line counts without white space, without the comma or semicolon at its end, and whichever quotation marks it has:
formatters change these. Lines are noted only while an index is written, with the key of that index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from indexer.values import list_in

#: A shorter line, such as a bracket or `else:`, says nothing about its author.
LEAST = 8
#: The bytes of a line's hash.
SIZE = 6
#: What edit tools call the text that they replace, and the text in its place; and the text of a whole file.
PAIRS = (("old_string", "new_string"), ("old_str", "new_str"), ("oldString", "newString"), ("oldText", "newText"))
_WHOLE = ("content", "file_text", "new_source")
_QUOTES = bytes.maketrans(b"'`", b'""')
_HEADS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")

_key = b""


@contextmanager
def noting(key: bytes) -> Iterator[None]:
    """Note lines with this key while logs are read."""
    global _key  # noqa: PLW0603 - readers are called in many ways, and there is one index
    before, _key = _key, key
    try:
        yield
    finally:
        _key = before


def key_in_use() -> bytes:
    """Return the key with which lines are noted; empty if they are not."""
    return _key


def plain(text: str) -> list[bytes]:
    """Return the lines of a text as they are compared."""
    bare = text.encode("utf-8", "replace").translate(_QUOTES, b" \t\r\f\v")
    return [line.rstrip(b",;") for line in bare.split(b"\n")]


def hashed(lines: Iterable[bytes], key: bytes) -> list[bytes]:
    """Return the hash of each plain line that says something, in order."""
    return [blake2b(line, digest_size=SIZE, key=key).digest() for line in lines if len(line) >= LEAST]


def added(given: Mapping[str, Any] | str, patch: str, paths: Iterable[str]) -> tuple[bytes, ...]:
    """Return the joined hashes of the lines that an edit adds to each of these paths; nothing if none are noted.

    `patch` is what the call was given if that is a patch, with the paths as it names them.
    """
    if not _key:
        return ()
    if patch:
        files = _patched(patch)
        return tuple(_joined(*files.get(path, ([], []))) for path in paths)
    if isinstance(given, str):
        return ()
    old, new = list[bytes](), list[bytes]()
    for one in (given, *list_in(given.get("edits"))):
        for before, after in PAIRS if isinstance(one, Mapping) else ():
            if isinstance(text := one.get(after), str):
                new += plain(text)
                old += plain(text) if isinstance(text := one.get(before), str) else ()
    if not new:
        new = plain(next((given[name] for name in _WHOLE if isinstance(given.get(name), str)), ""))
    return tuple(_joined(old, new) for _ in paths)


def _joined(old: Iterable[bytes], new: Iterable[bytes]) -> bytes:
    """The hashes of the lines that are only in the new text, each once."""
    gone = set(old)
    return b"".join(hashed([line for line in dict.fromkeys(new) if line not in gone], _key))


def _patched(patch: str) -> dict[str, tuple[list[bytes], list[bytes]]]:
    """The old and the new lines of each file of a patch."""
    files: dict[str, tuple[list[str], list[str]]] = {}
    old, new = list[str](), list[str]()
    for line in patch.splitlines():
        if line.startswith(_HEADS):
            name = line.partition(": ")[2].strip()
            if not line.startswith("*** Move"):
                old, new = [], []
            files[name] = (old, new)
        elif line[:1] == "+":
            new.append(line[1:])
        elif line[:1] == "-":
            old.append(line[1:])
    return {name: (plain("\n".join(old)), plain("\n".join(new))) for name, (old, new) in files.items()}
