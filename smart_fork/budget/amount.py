"""How much a fork may load: a number of tokens, or as little as answers."""

from __future__ import annotations

from typing import Literal

from indexer.patterns import late
from smart_fork.errors import Usage
from smart_fork.text.snippets import shown

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
