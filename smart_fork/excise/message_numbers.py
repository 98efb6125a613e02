"""The numbers of messages: those of ``show``, ``--at``, ``read_session`` and a search's ``turn_index``.

A message is numbered by its place in the conversation, as the indexer reads it. Lines that are no part of that
(bookkeeping, what was rewound, sub-agents) have no number; they go with what they stand between, or by their ids.
"""

from __future__ import annotations

from dataclasses import replace

from smart_fork.agents import READERS
from smart_fork.agents.facets import cutter
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


def numbered(session: Transcript) -> Transcript:
    """The session with the number of each of its turns; where nobody could be shown it, they are counted from 0."""
    places = _places(session)
    if places is None:
        return replace(session, numbers=tuple(range(len(session.turns))))
    found = [
        next((places[name] for name in (turn.id, *turn.aliases) if name in places), None) for turn in session.turns
    ]
    return replace(session, numbers=tuple(cutter(session.tool).numbered(session.turns, found)))


def _places(session: Transcript) -> dict[str, int] | None:
    if session.tool not in READERS.names:
        return None
    read = READERS[session.tool].read(session.source_path).session
    return {turn.id: number for number, turn in enumerate(read.turns)} if read else None
