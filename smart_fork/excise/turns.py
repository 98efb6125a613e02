"""The turns of a transcript as they are numbered."""

from __future__ import annotations

from smart_fork.cuts.answer import NumberedTurn, NumberedTurns
from smart_fork.cuts.model import Transcript


def listed(session: Transcript) -> NumberedTurns:
    """A transcript's turns in the order of the file, with the numbers that they have everywhere."""
    turns = tuple(
        NumberedTurn(
            number=number,
            id=turn.id,
            role=turn.role,
            timestamp=turn.timestamp,
            tokens=turn.token_est,
            inherited=turn.inherited,
            calls=tuple(call.id for call in turn.tool_calls),
            results=tuple(result.tool_use_id for result in turn.tool_results),
            preview=turn.preview,
        )
        for number, turn in zip(session.numbers, session.turns, strict=True)
    )
    return NumberedTurns(session.session_id, session.tool, str(session.source_path), session.tokens, turns)
