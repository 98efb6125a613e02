"""Rules that describe secrets, read from text files in this folder. Each rule has samples of text beside it.

The files are not TOML: its parser takes 30 ms for so many rules, and each command that masks something reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from indexer.lazy_compilation import late

#: The beginning of a mask. The kind of the secret and a bracket follow.
MARK = "[REDACTED:"
#: The character that replaces each character of a mask during a search. No pattern matches it.
HIDDEN = "\ufffe"
SHAPE, PHRASE, NAME, NEAR = 0, 1, 2, 3

_CHANGES = late(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")


class Span(NamedTuple):
    """The `start` and `end` of a secret in a text, and its `kind`.

    `source` says how the secret was found: by its `SHAPE`, by a `PHRASE` around it, by the `NAME` to which it is
    assigned, or because it is `NEAR` a word that hints at secrets.
    """

    start: int
    source: int
    end: int
    kind: str


def lines_at(plain: bytes, positions: Iterable[int]) -> list[tuple[int, int]]:
    """Return (start, end) of the lines at ascending `positions`, each once. `start` is the line end before the line."""
    lines: list[tuple[int, int]] = []
    end = -1
    for position in positions:
        if position > end:
            start = max(0, plain.rfind(b"\n", 0, position))
            end = plain.find(b"\n", position)
            end = len(plain) if end < 0 else end
            lines.append((start, end))
    return lines


def begun(text: str, position: int, most: int) -> int:
    """Return the position where the line around `position` begins, or `most` characters before `position`."""
    return max(text.rfind("\n", max(0, position - most), position) + 1, position - most, 0)


def ended(text: str, position: int, most: int) -> int:
    """Return the position where the line around `position` ends, or `most` characters after `position`."""
    end = text.find("\n", position, position + most)
    return end if end >= 0 else position + most


def is_monotone(value: str) -> bool:
    """Return True if the end of `value` repeats one or two characters, as in ``ghp_xxxxxxxx``."""
    return len(value) >= 8 and len(set(value[-12:])) <= 2


def alternations(value: str) -> int:
    """Count how often a digit follows a letter or a letter follows a digit."""
    return len(_CHANGES.findall(value))


Rule = dict[str, str]
#: Named patterns for all rule files, and those that `let` in a rule file defines.
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
    """Read the rules of the file `name`. A rule maps the first word of each of its lines to the rest of the line."""
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
    """Return the lines of the rule file `name` without comments and empty lines.

    A line that begins with `continued` continues the line before.
    """
    text = Path(__file__).with_name(f"{name}.rules").read_text(encoding="utf-8")
    whole = text.replace(f"\n{continued}", " " if continued == "    " else "")
    return [line for line in whole.splitlines() if line and not line.startswith("#")]


def literals(rule: Rule, key: str) -> tuple[str, ...]:
    """Return the alternatives in a rule's entry `key`, which ``|`` separates; empty without such an entry."""
    return tuple(rule[key].replace("␣", " ").replace("␉", "\t").split("|")) if key in rule else ()


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which ``{name}`` stands for a pattern with that name in a rule file."""
    return re.compile(expanded(pattern))


def expanded(pattern: str) -> str:
    """Replace each ``{name}`` in a pattern by the pattern with that name in a rule file."""
    while (longer := _NAME.sub(lambda name: _NAMED[name[1]], pattern)) != pattern:
        pattern = longer
    return pattern


rules_in("values")


class Vendor(NamedTuple):
    """One kind of token in ``vendors.rules``: the texts with which such a token begins, and a pattern for the rest.

    If the pattern is not `exact`, the rest has at least `length` letters and digits and must look random.
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
