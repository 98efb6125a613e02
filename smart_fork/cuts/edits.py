"""Minimal edits of kept lines: everything else stays verbatim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from indexer.transcripts.lines import decode_line
from smart_fork.text.json_edits import respelled

#: New bytes for kept lines, by the turn's position: ids are not unique.
Edits = Mapping[int, bytes]


def rewritten(raw: bytes, change: Callable[[dict[str, Any]], bool]) -> bytes:
    """Return the line with `change` applied to its objects. Unchanged values keep their spelling."""
    done = []
    touched = False
    for source, record in decode_line(raw)[0]:
        changed = change(record)
        touched = touched or changed
        done.append(respelled(source, record) if changed else source.rstrip(b"\r\n"))
    return b" ".join(done) if touched else raw
