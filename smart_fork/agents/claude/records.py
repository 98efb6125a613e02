"""The records of a Claude Code session in the order of its conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session, Turn
from smart_fork.agents.copier import Record
from smart_fork.agents.tree_copy import placed

#: The record that stands where a compaction was.
_BOUNDARY = "compact_boundary"


def of_conversation(session: Session, turns: Sequence[Turn]) -> Iterator[Record]:
    """The records of these turns, and of where compactions were between them.

    Raises:
        ForkRefused: the log was rewritten meanwhile.
    """
    order = _with_boundaries(session.source_path, turns) if session.compactions else [turn.id for turn in turns]
    records = (record for _, (_, record) in placed(session.source_path, order, is_said))
    return (record for record in records if record.get("type") != "attachment")


def is_boundary(record: Record) -> bool:
    """Whether a compaction was there."""
    return record.get("type") == "system" and record.get("subtype") == _BOUNDARY


def is_said(record: Record) -> bool:
    """Whether a record is of the conversation itself: a message, what was typed meanwhile, or a boundary."""
    kind = record.get("type")
    said = kind == "attachment" or (kind in ("user", "assistant") and isinstance(record.get("message"), dict))
    return (said or is_boundary(record)) and record.get("isSidechain") is not True


def _with_boundaries(source: Path, turns: Sequence[Turn]) -> list[str]:
    """The ids of the turns, each after that of the boundary which it, past what is no conversation, comes from."""
    above: dict[str, object] = {}
    boundaries: set[object] = set()
    for line in LineReader(source):
        record, identity = line.record, line.record.get("uuid")
        if isinstance(identity, str) and record.get("type") not in ("user", "assistant"):
            above.setdefault(identity, record.get("parentUuid"))
            if is_boundary(record) and record.get("isSidechain") is not True:
                boundaries.add(identity)
    order: list[str] = []
    for turn in turns:
        current, seen = turn.parent_id, set[str]()
        while current in above and current not in boundaries and current not in seen:
            seen.add(current)
            parent = above[current]
            current = parent if isinstance(parent, str) else None
        if current is not None and current in boundaries:
            boundaries.discard(current)
            order.append(current)
        order.append(turn.id)
    return order
