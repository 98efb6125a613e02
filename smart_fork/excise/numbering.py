"""The numbers of messages: those of ``show``, ``--at``, ``read_session`` and a search's ``turn_index``.

A message is numbered by its place in the conversation, as the indexer reads it. Lines that are no part of that
(bookkeeping, what was rewound, sub-agents) have no number; they go with what they stand between, or by their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from indexer.transcripts.model import Agent
from smart_fork.agents import AGENTS
from smart_fork.excise.model import Session, Turn


def numbered(session: Session) -> Session:
    """The session with the number of each of its turns; where nobody could be shown it, they are counted from 0."""
    places = _places(session)
    if places is None:
        return replace(session, numbers=tuple(range(len(session.turns))))
    found = [
        next((places[name] for name in (turn.id, *turn.aliases) if name in places), None) for turn in session.turns
    ]
    if session.tool == "codex":
        _number_both(session.turns, found)
    return replace(session, numbers=tuple(found))


def told_again(turn: Turn) -> str:
    """The id of the message that an event of Codex only tells again; empty for all else.

    Either of the two may be the one that a reader is shown.
    """
    named = (key.removeprefix("turn:") for key in turn.repeats if key.startswith("turn:"))
    return next(named, "") if turn.role == "system" else ""


def _places(session: Session) -> dict[str, int] | None:
    if session.tool not in ("claude", "codex"):
        return None
    agent: Agent = "claude" if session.tool == "claude" else "codex"
    read = AGENTS[agent].read(session.source_path).session
    return {turn.id: number for number, turn in enumerate(read.turns)} if read else None


def _number_both(turns: Sequence[Turn], numbers: list[int | None]) -> None:
    """What Codex says twice, as an item for the model and as an event for the screen, is one message."""
    at = {turn.id: position for position, turn in enumerate(turns)}
    for position, turn in enumerate(turns):
        item = at.get(told_again(turn))
        if item is not None and numbers[item] is None:
            numbers[item] = numbers[position]
        elif item is not None and numbers[position] is None:
            numbers[position] = numbers[item]
