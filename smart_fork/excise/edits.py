"""How lines that stay are rewritten: as little as possible, and everything else verbatim."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import orjson

from indexer.transcripts.boilerplate import strip_boilerplate
from indexer.transcripts.lines import decode_line
from smart_fork.excise import codex
from smart_fork.excise.claude import LINKS
from smart_fork.excise.lines import head
from smart_fork.excise.model import Session, Turn

#: New bytes for lines that stay, by the turn's position: an id may be there twice.
Edits = Mapping[int, bytes]


def relinked(turns: Sequence[Turn], gone: Collection[str]) -> dict[int, bytes]:
    """Lines of Claude Code that name a record that goes, naming the nearest that stays before it (E-040).

    Without that its walk from the leaf ends there, and everything before is lost.
    """
    parents = {name: turn.parent_id for turn in turns if turn.id in gone for name in (turn.id, *turn.aliases)}
    if not parents:
        return {}
    edits = {}
    for position, turn in enumerate(turns):
        if turn.id not in gone and any(name in parents for name in turn.links):
            edits[position] = _with(turn.raw, lambda record: _link(record, parents))
    return edits


def without_repetitions(session: Session, gone: Collection[str]) -> dict[int, bytes]:
    """Lines of Codex that must stay and repeat what goes, without that."""
    if session.tool != "codex":
        return {}
    heads = set()
    for turn in session.turns:
        if turn.id in gone and turn.role in ("user", "assistant") and not turn.tool_calls:
            said = codex.text_of(orjson.loads(turn.raw))
            heads |= {head(said), head(strip_boilerplate(said))}
    heads.discard("")
    if not heads:
        return {}
    known = frozenset(heads)
    edits = {}
    for position, turn in enumerate(session.turns):
        if turn.id in gone or turn.inherited or "repeating" not in turn.meta:
            continue
        raw = turn.raw
        new = _with(raw, lambda record: codex.rewritten(record, known))
        if new != raw:
            edits[position] = new
    return edits


def _link(record: dict[str, Any], parents: Mapping[str, str | None]) -> bool:
    changed = False
    for field in LINKS:
        name = record.get(field)
        if isinstance(name, str) and name in parents:
            record[field] = _ancestor(name, parents)
            changed = True
    return changed


def _ancestor(name: str, parents: Mapping[str, str | None]) -> str | None:
    """The nearest that stays. A circle has none."""
    seen: set[str] = set()
    current: str | None = name
    while current is not None and current in parents and current not in seen:
        seen.add(current)
        current = parents[current]
    return None if current in seen else current


def _with(raw: bytes, change: Callable[[dict[str, Any]], bool]) -> bytes:
    """The line with its objects changed: by exchanging the one value where that says the same, else written anew."""
    done = []
    touched = False
    for source, record in decode_line(raw)[0]:
        before = dict(record)
        if not change(record):
            done.append(source)
            continue
        touched = True
        done.append(_exchanged(source.rstrip(b"\r\n"), before, record) or orjson.dumps(record))
    return b" ".join(piece.rstrip(b"\r\n") for piece in done) if touched else raw


def _exchanged(raw: bytes, before: Mapping[str, Any], after: Mapping[str, Any]) -> bytes | None:
    """`raw` with the values of its changed fields exchanged in place; `None` where that is not the same."""
    for field in LINKS:
        if before.get(field) == after.get(field):
            continue
        new = orjson.dumps(after.get(field))
        for gap in (b"", b" "):
            old = orjson.dumps(field) + b":" + gap + orjson.dumps(before[field])
            if old in raw:
                raw = raw.replace(old, orjson.dumps(field) + b":" + gap + new, 1)
                break
    try:
        return raw if orjson.loads(raw) == after else None
    except orjson.JSONDecodeError:
        return None
