"""What is asked of a fork within a budget: how many tokens, or as little as answers; and which exchanges whatever they
take.
"""

from __future__ import annotations

from typing import Literal

from indexer.patterns import late
from indexer.shapes import dataclass
from smart_fork.agents.options import said
from smart_fork.errors import Usage, advice
from smart_fork.snippets import shown

#: In the place of a number: what answers, with what that needs, and nothing else.
MATCH: Literal["match"] = "match"
Amount = int | Literal["match"]
_NUMBER = late(r"([0-9]{1,9})(?:\.([0-9]{1,3}))?([kKmM]?)")
_TIMES = {"": 1, "k": 1_000, "m": 1_000_000}
#: No model takes more.
MOST = 100_000_000


def amount(given: object) -> Amount:
    """A budget as it was given: ``30000``, ``30k``, ``1.5m`` or ``match``.

    Raises:
        Usage: it is none.
    """
    if given == MATCH:
        return MATCH
    text = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    found = _NUMBER.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise Usage(f"{shown(given)} is not a budget", "Give a number of tokens, such as 30000 or 30k, or match.")
    whole, fraction, unit = found[1], found[2] or "", found[3].lower()
    if fraction and not unit:
        raise Usage(f"{shown(given)} is not a budget", "Give a whole number of tokens, such as 30000 or 30k, or match.")
    tokens = int(f"{whole}{fraction.ljust(6, '0')}") * _TIMES[unit] // 1_000_000
    if not 0 < tokens <= MOST:
        raise Usage(
            f"A budget is between 1 and {MOST:,} tokens, not {shown(given)}",
            "Give for example 30k, or match for the least.",
        )
    return tokens


@dataclass(frozen=True, slots=True)
class Wanted:
    """A budget, and the numbers of exchanges that are to be kept or dropped, whatever they take."""

    budget: Amount
    keep: frozenset[int] = frozenset()
    drop: frozenset[int] = frozenset()

    def changed(self) -> bool:
        """Whether a person has moved exchanges over."""
        return bool(self.keep or self.drop)


@dataclass(frozen=True, slots=True)
class BudgetAsked:
    """A budget as people and models give it."""

    budget: str | None = said(
        help="Keep only relevant exchanges, up to N tokens (30k) or `match`.",
        described="Keep only what answers, up to '30k' tokens. 'match': the least.",
    )
    keep: str | None = said(
        help="Exchanges that a --budget always keeps: 3,5-7.",
        described="Exchanges to keep within budget: '3,5-7'.",
    )
    drop: str | None = said(help="Exchanges that a --budget never keeps.", described="Exchanges to drop.")

    def wanted(self) -> Wanted | None:
        """See `wanted_of`."""
        return wanted_of(self.budget, self.keep, self.drop)


def wanted_of(budget: object, keep: str | None = None, drop: str | None = None) -> Wanted | None:
    """The budget that was given, if any, and the exchanges that are to be kept or dropped, such as ``3,5-7``.

    Raises:
        Usage: it is none, or exchanges are named without one.
    """
    if budget is None:
        if keep is not None or drop is not None:
            raise Usage(
                "Keeping and dropping exchanges needs a budget",
                advice("Give a number of tokens as well: --budget 30k.", tool="Give a budget as well: '30k'."),
            )
        return None
    return Wanted(amount(budget), numbers(keep), numbers(drop))


def numbers(given: str | None) -> frozenset[int]:
    """The exchanges that are meant by ``3,5-7``.

    Raises:
        Usage: it is nothing like that.
    """
    found: set[int] = set()
    for piece in (given or "").split(","):
        low, dash, high = (side.strip() for side in piece.partition("-"))
        if not low and not dash:
            continue
        sides = (low, high if dash else low)
        if not all(side.isascii() and side.isdigit() and len(side) <= 6 for side in sides):
            raise Usage("Exchanges are given by number, such as 3,5-7", "--dry-run shows them.")
        first, last = sorted(map(int, sides))
        if last - first > 100_000:
            raise Usage("Exchanges are given by number, such as 3,5-7", "--dry-run shows them.")
        found.update(range(first, last + 1))
    return frozenset(found)
