"""Names of code in what tools were given and gave back: a session is found by a name that it only saw.

Tool output itself is never indexed; a name such as ``getUserById`` or ``MAX_RETRY_COUNT`` is a few bytes.
"""

from __future__ import annotations

import re

#: Characters looked at in one input or output; longer ones are listings and dumps.
HEAD_CHARACTERS = 16_384
#: Different names kept a session.
MAX_SYMBOLS = 8_000
#: Parts of one list looked at.
MAX_PARTS = 100

#: snake_case, UPPER_CASE, camelCase, PascalCase; a word of one kind of letter alone is none.
_SYMBOL = re.compile(r"\b[A-Za-z][a-z0-9]*(?:_[A-Za-z0-9]|[A-Z][A-Za-z0-9]*(?:[a-z0-9]|_[A-Za-z0-9]))\w*", re.ASCII)
_LENGTHS = range(6, 65)
#: Keys and digests look like names with many digits in them.
_DIGITS = re.compile(r"\d")
_MAX_DIGITS = 8


def add_symbols(text: str, known: dict[str, None]) -> None:
    """Add the names in `text` to `known`, which keeps their order and at most `MAX_SYMBOLS`."""
    if len(known) >= MAX_SYMBOLS:
        return
    for name in dict.fromkeys(_SYMBOL.findall(text[:HEAD_CHARACTERS])):
        if name not in known and len(name) in _LENGTHS and len(_DIGITS.findall(name)) <= _MAX_DIGITS:
            known[name] = None
            if len(known) >= MAX_SYMBOLS:
                return


def add_symbols_of(value: object, known: dict[str, None]) -> None:
    """The same for every text in the arguments of a call, however deep."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            add_symbols(value, known)
        elif isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value[:MAX_PARTS])
