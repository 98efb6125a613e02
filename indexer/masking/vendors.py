"""Reads ``vendors.rules``: tokens that begin in a way of their own, by vendor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from indexer.masking.rules import lines_of

_COUNTED = re.compile(r"(\d+)([^\w\s]*)")


class Vendor(NamedTuple):
    """One kind of token: its beginnings, and a pattern for what follows.

    A pattern that is not `exact` stands for at least `length` letters and digits, which must look random.
    """

    kind: str
    beginnings: list[str]
    follows: str
    length: int
    exact: bool


def _read() -> Iterator[Vendor]:
    for line in lines_of("vendors", "    "):
        if line.startswith("  +"):
            continue
        kind, *beginnings, follows = line.split()
        if counted := _COUNTED.fullmatch(follows):
            least, also = counted.groups()
            yield Vendor(kind, beginnings, f"[A-Za-z0-9_{re.escape(also)}-]{{{least},}}+", int(least), exact=False)
        else:
            yield Vendor(kind, beginnings, follows, 0, exact=True)


VENDORS = tuple(_read())
