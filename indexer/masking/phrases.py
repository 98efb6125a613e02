"""Finds secrets by the words around them: ``phrases.rules``, and ``prose.rules`` for sentences."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from indexer.masking.nouns import speaks_abroad
from indexer.masking.phrase import Phrase, found_at, found_in, phrases_of
from indexer.masking.spans import SHAPE, Span, lines_at, monotone
from indexer.masking.vendors import VENDORS
from indexer.patterns import late

_CHARACTER = "[A-Za-z0-9_-]"
#: A line end or a sum of strings, with the marks of a continued line or string, the edges of a box, and what quotes,
#: diffs and indents put before the next.
_BREAK = (
    r"(?:(?:\\{0,2}|=|[\"'][ \t]{0,4}[+.&\\]?[ \t]{0,4}|[ \t]{1,3}[│┃┆║|][ \t]{0,3})\r?\n[ \t>+|#│┃┆║▌▏▎-]{0,12}[\"']?|"
    r"\\{1,2}n|[\"'][ \t]{0,2}[+.&]?[ \t]{0,2}[\"']|%0[aA])"
)
#: Of a longer token one half is long enough to be found by itself.
_LONG, _LEAST_BEGINNING, _LEAST = 40, 3, 20
#: A hash of a password as files of users and programs hold it.
_CRYPT = late(
    r"\$((?:[1-9]|y|gy|apr1|argon2(?:id|i|d)|scrypt|pbkdf2(?:-sha\d{1,3})?|sha1|2[abxy]|krb5\w{2,8}|DCC2)\$"
    r"(?:[A-Za-z0-9./+=,_#*@-]{1,64}\$){0,4}[A-Za-z0-9./+=_$-]{20,}+)"
)


def _wrapped() -> Iterator[Phrase]:
    """Yield a phrase for each short token that a line end may part."""
    for vendor in VENDORS:
        length = vendor.length or _LEAST
        for beginning in vendor.beginnings:
            short = _LEAST_BEGINNING <= len(beginning) < _LONG - length
            known = vendor.length or (beginning.isalpha() and beginning.isupper() and len(beginning) > _LEAST_BEGINNING)
            if short and known and beginning[0].isalpha() and not (beginning.isalpha() and beginning.islower()):
                yield _parted(vendor.kind, beginning, length - (not vendor.length) * len(beginning))


def _parted(kind: str, beginning: str, length: int) -> Phrase:
    pattern = (
        rf"(?<![A-Za-z0-9_])({re.escape(beginning)}(?=(?:{_CHARACTER}|{_BREAK}){{{length + 1}}})"
        rf"{_CHARACTER}{{1,{length - 1}}}+{_BREAK}{_CHARACTER}{{4,}}+(?![:(]))"
    )
    anchor = beginning.lower().encode()
    word = re.split(rb"[^a-z0-9]", anchor)[0]
    return Phrase(kind, (anchor,), (anchor,), () if word == anchor else (word,), pattern, "random", begins=True)


_TOLD = [*phrases_of("phrases"), *phrases_of("prose"), *_wrapped()]
#: Phrases with words beyond ASCII, which the bytes of a text do not show, and the others by the signs of a text.
_ABROAD = [phrase for phrase in _TOLD if not all(map(bytes.isascii, phrase.anchors))]
_BY_SIGN: dict[bytes, list[Phrase]] = defaultdict(list)
for _phrase in _TOLD:
    for _sign in _phrase.words or _phrase.signs if _phrase not in _ABROAD else ():
        _BY_SIGN[_sign].append(_phrase)
PHRASE_WORDS = frozenset(word for phrase in _TOLD for word in phrase.words)
PHRASE_SIGNS = frozenset(
    sign for phrase in _TOLD if not phrase.words and phrase not in _ABROAD for sign in phrase.signs
)
PHRASE_ANCHORS = frozenset(anchor for phrase in _TOLD if phrase not in _ABROAD for anchor in phrase.anchors)


def phrases_in(text: str, lower: bytes, signs: Iterable[bytes], places: Mapping[bytes, list[int]]) -> Iterator[Span]:
    """Yield the secrets in `text`, which is `lower` with one byte a character and no capitals, and has these signs.

    `places` are those of the anchors that it has.
    """
    for phrase in dict.fromkeys(phrase for sign in signs for phrase in _BY_SIGN.get(sign, ())):
        if not places.keys().isdisjoint(phrase.anchors):
            there = [place for anchor in phrase.anchors for place in places.get(anchor, ())]
            yield from found_in(phrase, text, lower, there)


def phrases_abroad(text: str, plain: bytes) -> Iterator[Span]:
    """Yield passwords that are told in words beyond ASCII."""
    for phrase in _ABROAD if speaks_abroad(text) else ():
        for word in (anchor.decode() for anchor in phrase.anchors):
            if word in text:
                yield from found_at(phrase, text, lines_at(plain, (match.start() for match in re.finditer(word, text))))


def hashes_in(text: str, lower: bytes) -> Iterator[Span]:
    """Yield hashes of passwords."""
    for match in _CRYPT.finditer(text) if b"$" in lower else ():
        if not monotone(match[1]):
            yield Span(match.start(1), SHAPE, match.end(1), "password-hash")
