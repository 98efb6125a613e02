"""How lines that stay are rewritten: as little as possible, and everything else verbatim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from indexer.transcripts.lines import decode_line
from smart_fork.text.json_edits import respelled

#: New bytes for lines that stay, by the turn's position: an id may be there twice.
Edits = Mapping[int, bytes]


def rewritten(raw: bytes, change: Callable[[dict[str, Any]], bool]) -> bytes:
    """The line with its objects changed, and all that is not changed as it is spelled there."""
    done = []
    touched = False
    for source, record in decode_line(raw)[0]:
        changed = change(record)
        touched = touched or changed
        done.append(respelled(source, record) if changed else source.rstrip(b"\r\n"))
    return b" ".join(done) if touched else raw
