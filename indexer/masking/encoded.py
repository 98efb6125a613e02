"""Texts that are written as base64 or as numbers: in commands, in Secrets of Kubernetes, in files of settings."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator

from indexer.patterns import late

_BASE64 = late(rb"[A-Za-z0-9+/_-]{20,}+={0,2}")
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-")
_READABLE = frozenset((9, 10, 13, *range(32, 127)))
#: How base64 of readable text begins: the first letter of four says what the first of three characters is.
_SEEMS_TEXT = late(rb"(?:[CDI-Za-f][A-Za-z0-9+/_-]{3}){4}")
#: So many characters at its beginning tell whether it is a text.
_TELLING = 20


#: A readable text as a number of base 16.
_HEX_TEXT = late(rb"(?:[2-7][0-9a-fA-F]|0[aAdD9]){16,}")


def texts_in(plain: bytes, starts: Iterable[int]) -> Iterator[tuple[int, int, str]]:
    """Where base64 of a readable text is, and that text; `starts` are where long runs of token characters begin."""
    for begin, end in long_words(plain, starts):
        if _HEX_TEXT.fullmatch(plain, begin, end):
            yield begin, end, bytes.fromhex(plain[begin:end].decode()).decode("ascii", "replace")
        elif (
            _SEEMS_TEXT.match(plain, begin)
            and _readable(plain[begin : begin + _TELLING])
            and (said := _decoded(plain[begin:end])) is not None
        ):
            yield begin, end, said.decode("ascii", "replace")


def long_words(plain: bytes, starts: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield where words of at least 20 letters of base64 begin and end; `starts` are in them."""
    done = 0
    for start in starts:
        if start < done:
            continue
        begin = start
        while begin > done and plain[begin - 1] in _LETTERS:
            begin -= 1
        if match := _BASE64.match(plain, begin):
            done = match.end()
            yield begin, done


def _readable(beginning: bytes) -> bool:
    said = _decoded(beginning)
    return said is not None and _READABLE.issuperset(said)


def _decoded(written: bytes) -> bytes | None:
    written = written.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    try:
        return base64.b64decode(written[: len(written) - (len(written) % 4 == 1)] + b"=" * (-len(written) % 4))
    except binascii.Error:
        return None
