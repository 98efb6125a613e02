"""Words that tell of secrets, looked for all at once: most texts have none of them, and cost one search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ahocorasick_rs import BytesAhoCorasick, Implementation

#: What words are made of, and blanks for all else.
_LETTERS = bytes(byte if chr(byte).isascii() and chr(byte).isalnum() else 32 for byte in range(256))


def words_of(lower: bytes) -> list[bytes]:
    """The words of a text."""
    return lower.translate(_LETTERS).split()


class Literals:
    """Literals in lower case, each of which may begin or end in another."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        self._literals = tuple(dict.fromkeys(literals))
        self._search = BytesAhoCorasick(self._literals, implementation=Implementation.DFA)

    def places_in(self, lower: bytes) -> Mapping[bytes, list[int]]:
        """Where those begin that are in `lower`, in ascending order."""
        places: dict[bytes, list[int]] = {}
        for number, start, _ in self._search.find_matches_as_indexes(lower, overlapping=True):
            places.setdefault(self._literals[number], []).append(start)
        return places
