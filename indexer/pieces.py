"""What of a session is indexed: what was said, and a line for each action. Secrets are masked here, for all readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from indexer.transcripts.actions import is_ours
from indexer.transcripts.model import Session, Turn

PieceRole = Literal["user", "assistant", "action"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one turn. `turn` indexes ``Session.turns``, `exchange` counts from 0."""

    role: PieceRole
    text: str
    turn: int
    message_id: str
    exchange: int


def pieces_of(session: Session, mask: Callable[[str], str]) -> tuple[Piece, ...]:
    """The pieces of a session in order, each passed through `mask`.

    Tool output, thinking and our own tool's calls are not among them.
    """
    ours = {call.id for turn in session.turns for call in turn.tool_calls if is_ours(call.name)}
    notes = {
        result.tool_use_id: result.note
        for turn in session.turns
        for result in turn.tool_results
        if result.note and result.tool_use_id not in ours
    }
    pieces: list[Piece] = []
    for exchange in session.exchanges():
        for offset, turn in enumerate(exchange.turns):
            index = exchange.start + offset
            if turn.text and turn.role in ("user", "assistant"):
                role: PieceRole = "user" if turn.role == "user" else "assistant"
                pieces.append(Piece(role, mask(_clean(turn.text)), index, turn.id, exchange.index))
            if actions := _actions(turn, notes):
                pieces.append(Piece("action", mask(_clean(actions)), index, turn.id, exchange.index))
    return tuple(pieces)


def _actions(turn: Turn, notes: dict[str, str]) -> str:
    lines = []
    for call in turn.tool_calls:
        if call.action and not is_ours(call.name):
            note = notes.get(call.id)
            lines.append(f"{call.action} -> {note}" if note else call.action)
    return "\n".join(lines)


def _clean(text: str) -> str:
    """Without NUL, at which C libraries end a text."""
    return text.replace("\0", "")
