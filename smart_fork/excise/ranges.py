"""Which turns are meant: ``5-7,9``, counted from 1 (E-070)."""

from __future__ import annotations

from collections.abc import Sequence

from smart_fork.errors import Usage
from smart_fork.excise.model import Turn

#: Of a turn's number; Python reads no number of thousands.
MAX_DIGITS = 9
_HINT = "Ranges look like 5-7,9; `smart-fork excise list` numbers the turns."
#: Of what is no range, how much is repeated.
MAX_SHOWN = 80


def numbers(text: str, count: int) -> list[int]:
    """The numbers of a range, each once, in order. Blanks are allowed, reversed ranges are swapped.

    Raises:
        Usage: it is no range, or beyond `count`.
    """
    found: set[int] = set()
    for piece in text.split(","):
        if not (part := piece.strip()):
            continue
        low, dash, high = (side.strip() for side in part.partition("-"))
        if dash and not (_is_number(low) and _is_number(high)):
            raise Usage(f'bad range "{part[:MAX_SHOWN]}"', _HINT)
        if not _is_number(low):
            raise Usage(f'bad turn "{part[:MAX_SHOWN]}"', _HINT)
        first, last = sorted((int(low), int(high) if dash else int(low)))
        for number in (first, last):
            if not 1 <= number <= count:
                raise Usage(f"turn {number} out of range (have {count} turns)")
        found.update(range(first, last + 1))
    if not found:
        raise Usage(f'bad range "{text[:MAX_SHOWN]}"', "Ranges look like 5-7,9.")
    return sorted(found)


def chosen(turns: Sequence[Turn], text: str = "", ids: Sequence[str] = ()) -> set[str]:
    """The ids of the turns that a range or a list of ids means (E-073).

    Raises:
        Usage: a turn is not there (E-034).
    """
    found = {turns[number - 1].id for number in numbers(text, len(turns))} if text else set()
    names = {name: turn.id for turn in turns for name in (turn.id, *turn.aliases)}
    for identity in ids:
        if identity not in names:
            raise Usage(f"no turn with id {identity[:MAX_SHOWN]}", "`smart-fork excise list --json` gives the ids.")
        found.add(names[identity])
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
