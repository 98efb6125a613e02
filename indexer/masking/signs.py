"""Words that tell of secrets, looked for all at once: most texts have none of them, and cost one search."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

#: What texts and code are made of, in lower case, the most frequent first.
_FREQUENT = b' etsrionacldpumh/g.-f\nb":ywvk,_`0?12()x=\\*'


#: What words are made of, and blanks for all else.
_LETTERS = bytes(byte if chr(byte).isascii() and chr(byte).isalnum() else 32 for byte in range(256))


def words_of(lower: bytes) -> list[bytes]:
    """The words of a text."""
    return lower.translate(_LETTERS).split()


class Signs:
    """Literals in lower case. Each is known by its rarest character: the search skips to those, which are few."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        self._literals: list[bytes] = []
        by_rarest: dict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
        for literal in dict.fromkeys(literals):
            at = max(range(len(literal)), key=lambda place: _rarity(literal[place]))
            by_rarest[literal[at : at + 1]].append((literal, at))
        self._others = {
            literal: tuple(_others(literal, at, together))
            for together in by_rarest.values()
            for literal, at in together
        }
        ways = []
        for rarest, together in by_rarest.items():
            self._literals += [literal for literal, _ in together]
            ways.append(re.escape(rarest) + b"(?:" + b"|".join(_around(*place) for place in together) + b")")
        self._pattern = re.compile(b"|".join(ways))

    def found_in(self, lower: bytes) -> AbstractSet[bytes]:
        """Those that are in `lower`."""
        signs = {self._literals[(found.lastindex or 0) - 1] for found in self._pattern.finditer(lower)}
        # Of two at one place the pattern names the first.
        beside = {other for literal in signs for other in self._others[literal] if other not in signs}
        return signs | {other for other in beside if other in lower}


def _others(literal: bytes, at: int, together: Iterable[tuple[bytes, int]]) -> Iterator[bytes]:
    """Those that may be where `literal` is, with the same rarest character."""
    for other, place in together:
        first = min(at, place)
        overlap = min(len(literal) - at, len(other) - place)
        if other != literal and literal[at - first : at + overlap] == other[place - first : place + overlap]:
            yield other


def _rarity(character: int) -> int:
    place = _FREQUENT.find(character)
    return place if place >= 0 else len(_FREQUENT)


def _around(literal: bytes, at: int) -> bytes:
    """A pattern for what is around one character of `literal`; no further is read, as another may begin in it."""
    before = b"(?<=" + re.escape(literal[: at + 1]) + b")" if at else b""
    return before + b"(?=(" + re.escape(literal[at + 1 :]) + b"))"
