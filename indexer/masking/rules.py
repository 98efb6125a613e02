"""Reads the rules for masking: text files in this directory, in which each rule has its samples beside it.

They are not TOML, because its parser takes 30 ms for so many rules, and each command that masks something reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from indexer.masking.spans import HIDDEN

Rule = dict[str, str]
#: Patterns that all files know, and those that `let` names.
_NAMED = {
    "hidden": HIDDEN,
    "quote": r"\\{0,3}[\"'`]",
    "uuid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "value": r"(?:'([^'\n{hidden}]{3,256}+)'|\"([^\"\n{hidden}]{3,256}+)\"|"
    r"([^\s\"'`|;&<>(){hidden}-][^\s\"'`|<>{hidden}]{2,256}+))",
}
_COUNTED = re.compile(r"(\d+)([^\w\s]*)")
_NAME = re.compile(r"\{([a-z_]+)\}")


def rules_in(name: str) -> list[Rule]:
    """Return the rules of a file. A rule has the values of its lines by their first words."""
    rules = list[Rule]()
    for line in lines_of(name, "       "):
        key, value = line[:7].rstrip(), line[7:]
        if key == "let":
            called, _, pattern = value.partition(" ")
            _NAMED[called] = pattern
        elif key == "rule":
            rules.append({key: value})
        else:
            rules[-1][key] = value
    return rules


def lines_of(name: str, continued: str) -> list[str]:
    """Return the lines of a file without comments. A line that begins with `continued` continues the one before."""
    text = Path(__file__).with_name(f"{name}.rules").read_text(encoding="utf-8")
    whole = text.replace(f"\n{continued}", " " if continued == "    " else "")
    return [line for line in whole.splitlines() if line and not line.startswith("#")]


def literals(rule: Rule, key: str) -> tuple[str, ...]:
    """Return the literals of a rule."""
    return tuple(rule[key].replace("␣", " ").replace("␉", "\t").split("|")) if key in rule else ()


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern with names of other patterns in it."""
    return re.compile(expanded(pattern))


def expanded(pattern: str) -> str:
    """Return a pattern with the patterns that its names stand for."""
    while (longer := _NAME.sub(lambda name: _NAMED[name[1]], pattern)) != pattern:
        pattern = longer
    return pattern


rules_in("values")


class Vendor(NamedTuple):
    """One kind of token of ``vendors.rules``: its beginnings, and a pattern for what follows.

    A pattern that is not `exact` stands for at least `length` letters and digits, which must look random.
    """

    kind: str
    beginnings: list[str]
    follows: str
    length: int
    exact: bool


def _vendors() -> Iterator[Vendor]:
    for line in lines_of("vendors", "    "):
        if line.startswith("  +"):
            continue
        kind, *beginnings, follows = line.split()
        if counted := _COUNTED.fullmatch(follows):
            least, also = counted.groups()
            yield Vendor(kind, beginnings, f"[A-Za-z0-9_{re.escape(also)}-]{{{least},}}+", int(least), exact=False)
        else:
            yield Vendor(kind, beginnings, follows, 0, exact=True)


VENDORS = tuple(_vendors())
