"""Finds passwords behind options of commands, which ``commands.rules`` lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from indexer.masking.phrase import Phrase, found_at, phrases_of
from indexer.masking.spans import Span, lines_at
from indexer.patterns import late

#: Short options that a password may follow.
OPTION = late(rb" -(?:[a-z]{0,3}u|[pawnk]|hp|-pass|-user|-auth|-proxy-user|pass|storep|keyp|destst|srcst)")
#: The characters of programs' names, with blanks for all other bytes.
_NAMES = bytes(
    byte if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "_.-") else 32 for byte in range(256)
)


def commands_in(text: str, lower: bytes) -> Iterator[Span]:
    """Yield the passwords behind options of commands."""
    if options := [found.start() for found in OPTION.finditer(lower)]:
        lines = lines_at(lower, options)
        said = b"\n".join([lower[start:end] for start, end in lines])
        if not _words_in(said).isdisjoint(_by_program()):
            for phrase in dict.fromkeys(_by_program()[found[1]] for found in _programs().finditer(said)):
                yield from found_at(phrase, text, lines)


def _words_in(said: bytes) -> set[bytes]:
    """Return words that may be names of programs. This is much faster than a search for all names."""
    for not_of_the_name in (b".exe", b"\\n", b"\\r", b"\\t") if b"\\" in said or b".exe" in said else ():
        said = said.replace(not_of_the_name, b" ")
    return set(said.translate(_NAMES).split())


@cache
def _by_program() -> dict[bytes, Phrase]:
    return {program: phrase for phrase in phrases_of("commands") for program in phrase.anchors}


@cache
def _programs() -> re.Pattern[bytes]:
    longest_first: list[bytes] = sorted(_by_program(), key=len, reverse=True)
    names = b"|".join(longest_first)
    return re.compile(rb"(?:(?<![a-z0-9_.-])|(?<=\\[nrt]))(" + names + rb")(?:\.exe)?[ \t]")
