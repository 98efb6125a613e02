"""What of a session is indexed: what was said, and a line for each action. Secrets are masked here, for all readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from indexer.masking import Masked, joined
from indexer.patterns import late
from indexer.transcripts.model import Session, Turn
from indexer.transcripts.ours import is_ours
from indexer.transcripts.retold import ASKED_US, Retold, retold

PieceRole = Literal["user", "assistant", "action"]
_BLANK_LINES = late(r"\n{3,}")


class Piece(NamedTuple):
    """A stretch of one turn. `turn` indexes ``Session.turns``, `exchange` counts from 0.

    `line` is the line of the export on which its text begins, from 1; 0 before it is rendered. `apart` says that
    something stands between it and the piece before which is not indexed.
    """

    role: PieceRole
    text: Masked
    turn: int
    message_id: str
    exchange: int
    line: int = 0
    apart: bool = False


def pieces_of(session: Session, mask: Callable[[str], Masked]) -> tuple[Piece, ...]:
    """The pieces of a session in order, what was said in them passed through `mask`.

    Tool output, thinking and our own tool's calls are not among them; what is told of another agent's is as if it were
    its own.
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
            role: PieceRole = "user" if turn.role == "user" else "assistant"
            said = _clean(turn.text) if turn.text and turn.role in ("user", "assistant") else ""
            told = retold(said) if role == "assistant" else Retold(said)
            if told.said:
                pieces.append(Piece(role, mask(told.said), index, turn.id, exchange.index))
            # One by one, as they stand in the other agent's own session: so passages begin and end where those do.
            done = [mask(one.noted) for one in told.done if one.line != ASKED_US]
            done += [own] if (own := _actions(turn, notes)) else []
            pieces += [Piece("action", actions, index, turn.id, exchange.index) for actions in done]
    return tuple(pieces)


def _actions(turn: Turn, notes: dict[str, Masked]) -> Masked:
    lines = []
    for call in turn.tool_calls:
        if call.action and not is_ours(call.name):
            note = notes.get(call.id)
            lines.append(joined(" -> ", (call.action, note)) if note else call.action)
    return joined("\n", lines)


def _clean(text: str) -> str:
    """Without NUL, at which C libraries end a text; with lines that end alike for every reader, one blank at a time."""
    text = "\n".join(text.replace("\0", "").splitlines()).strip()
    return _BLANK_LINES.sub("\n\n", text) if "\n\n\n" in text else text
