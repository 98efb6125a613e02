"""Short tokens that a line end cuts in two: neither half is long enough to be seen. Longer ones: `view.joined`."""

from __future__ import annotations

import re

from indexer.masking.phrase import Phrase, by_sign
from indexer.masking.vendors import VENDORS, Vendor

_CHARACTER = "[A-Za-z0-9_-]"
#: A line end, with what says that a line or a string goes on, and what quotes, diffs and indents put before the next.
_BREAK = r"(?:(?:\\{0,2}|=|[\"'][ \t]{0,4}[+.&\\]?[ \t]{0,4})\r?\n[ \t>+|#-]{0,12}[\"']?|%0[aA])"
#: Two halves of a longer token have one that is long by itself.
_LONG, _LEAST_BEGINNING = 40, 4
_COUNTED = re.compile(r"\[[A-Z0-9a-z]+\]\{(\d+)\}")


def _length(vendor: Vendor) -> int:
    """How many characters follow at least; 0 where that is not known."""
    counted = _COUNTED.fullmatch(vendor.follows) if isinstance(vendor.follows, str) else None
    return int(counted[1]) if counted else vendor.follows if isinstance(vendor.follows, int) else 0


def _phrase(kind: str, beginning: str, length: int) -> Phrase:
    pattern = (
        rf"(?<![A-Za-z0-9])({re.escape(beginning)}(?=(?:{_CHARACTER}|{_BREAK}){{{length + 1}}})"
        rf"{_CHARACTER}{{1,{length - 1}}}+{_BREAK}{_CHARACTER}{{4,}}+)"
    )
    sign = re.split(r"[^a-z0-9]", beginning.lower())[0]
    return Phrase(
        kind, beginning.lower(), pattern, "random", begins=True, words="" if sign == beginning.lower() else sign
    )


WRAPPED = by_sign(
    *(
        _phrase(vendor.kind, beginning, length)
        for vendor in VENDORS
        for beginning in vendor.beginnings.split()
        if (length := _length(vendor))
        and len(beginning) >= _LEAST_BEGINNING
        and len(beginning) + length < _LONG
        and (not beginning.isalpha() or beginning == "AKIA")
        and beginning[0].isalpha()
    )
)
