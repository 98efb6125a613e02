"""Which turns are meant: ``5-7,9``, as every listing numbers messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from smart_fork.agents.facets import cutter
from smart_fork.agents.readers import READERS
from smart_fork.cuts.answer import NumberedTurn, NumberedTurns
from smart_fork.cuts.model import Transcript, told_again
from smart_fork.errors import Usage, advice
from smart_fork.sessions import left_out
from smart_fork.text.snippets import quoted


def listed(session: Transcript) -> NumberedTurns:
    """A transcript's turns in the order of the file, with the numbers that they have everywhere."""
    turns = tuple(
        NumberedTurn(
            number=number,
            id=turn.id,
            role=turn.role,
            timestamp=turn.timestamp,
            tokens=turn.token_est,
            inherited=turn.is_parents,
            calls=tuple(call.id for call in turn.tool_calls),
            results=tuple(result.tool_use_id for result in turn.tool_results),
            preview=turn.preview,
        )
        for number, turn in zip(session.numbers, session.turns, strict=True)
    )
    path = str(session.source_path)
    return NumberedTurns(session.session_id, session.tool, path, session.tokens, turns, session.left_out)


def numbered(session: Transcript) -> Transcript:
    """The session with the number of each of its turns; where nobody could be shown it, they are counted from 0."""
    known = session.tool in READERS.names
    read = READERS[session.tool].read(session.source_path).session if known else None
    if read is None:
        return replace(session, numbers=tuple(range(len(session.turns))))
    places = {turn.id: number for number, turn in enumerate(read.turns)}
    found = [
        next((places[name] for name in (turn.id, *turn.aliases) if name in places), None) for turn in session.turns
    ]
    numbers = tuple(cutter(session.tool).numbered(session.turns, found))
    return replace(session, numbers=numbers, left_out=left_out(read))


#: Of a turn's number; Python reads no number of thousands.
MAX_DIGITS = 9


def pieces(text: str, count: int) -> list[tuple[int, int]]:
    """The first and last number of each piece of a range. Blanks are allowed, reversed ranges are swapped.

    Raises:
        Usage: it is no range, or a number is not below `count`.
    """
    found: list[tuple[int, int]] = []
    for piece in text.split(","):
        if not (part := piece.strip()):
            continue
        low, dash, high = (side.strip() for side in part.partition("-"))
        if dash and not (_is_number(low) and _is_number(high)):
            raise Usage(f'bad range "{quoted(part)}"', _hint())
        if not _is_number(low):
            raise Usage(f'bad turn "{quoted(part)}"', _hint())
        first, last = sorted((int(low), int(high) if dash else int(low)))
        if last >= count:
            raise Usage(f"turn {last} out of range (the last one is {count - 1})", _hint())
        found.append((first, last))
    if not found:
        raise Usage(f'bad range "{quoted(text)}"', "Ranges look like 5-7,9.")
    return found


def chosen(session: Transcript, text: str = "", ids: Sequence[str] = ()) -> set[str]:
    """The ids of the turns that a range or a list of ids means.

    A range takes the lines of the conversation along that stand between two of its messages and have no number.

    Raises:
        Usage: a turn is not there.
    """
    turns = session.turns
    last = max((number for number in session.numbers if number is not None), default=-1)
    ranges = pieces(text, last + 1) if text else []
    found = {turns[position].id for low, high in ranges for position in _positions(session, low, high)}
    names = {name: turn for turn in turns for name in (turn.id, *turn.aliases)}
    for identity in ids:
        if identity not in names:
            raise Usage(
                f"no turn with id {quoted(identity)}",
                advice(
                    "`smart-fork excise list --json` gives the ids.", tool="read_session gives the ids, as message_id."
                ),
            )
        found.update(filter(None, (names[identity].id, told_again(names[identity]))))
    return found


def _hint() -> str:
    looks = "Ranges look like 5-7,9"
    return advice(f"{looks}; `smart-fork excise list` numbers the turns.", tool=f"{looks}; read_session numbers them.")


def _positions(session: Transcript, low: int, high: int) -> Iterator[int]:
    named = [at for at, number in enumerate(session.numbers) if number is not None and low <= number <= high]
    yield from named
    if low < high and named:
        is_said = cutter(session.tool).is_said
        for at in range(named[0], named[-1]):
            if session.numbers[at] is None and is_said(session.turns[at]):
                yield at


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
