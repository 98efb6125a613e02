"""Texts that others have cut: what stands at the edge is a secret if any way to go on makes it one."""

from __future__ import annotations

from collections.abc import Iterator

from indexer.masking.secrets import hidden, redact, spans_of
from indexer.masking.spans import Span
from indexer.masking.view import View
from indexer.patterns import late

_MIXED, _HEX, _UPPER = "k7Q2m9X4" * 14, "4e7a1f09" * 16, "K7Q2M9X4" * 14
#: How a text may go on in which a secret of any kind is cut: its characters, its parts, and what ends it.
_WAYS_ON = (
    _MIXED,
    _HEX,
    _UPPER,
    f"{_MIXED[:22]}.{_MIXED[:43]}.{_MIXED[:43]}",
    f"1-1234567890123-{_HEX[:24]}",
    f"{_HEX[:32]}-us12",
    f"{_MIXED[:16]}@host.example/",
    f"{_MIXED[:86]}==",
)
#: So much before a cut tells what stands there.
_LOOKED_AT = 4096
_ELLIPSIS = late(r"\s*(?:…|\.\.\.)\s*\Z")
_ELLIPSES = late(r"…|\.\.\.")
#: Where a terminal, or what draws in it, goes on in the next line: blanks and the lines of a box.
_FRAME = " \t│┃┆|─━╭╮╰╯┌┐└┘"
#: A line is full that has no more room than this beside the longest one; no terminal is narrower than that.
_ROOM, _NARROWEST = 8, 40
_WRAP = late(r"[ \t]*[│┃┆|]?[ \t]*\n[ \t]*[│┃┆|]?[ \t]*")


def masked_before_a_cut(text: str) -> str:
    """`text`, masked, with what its end may have cut in two."""
    found = _ELLIPSIS.search(text)
    return redact(hidden(text, [*spans_of(text), *_cut_at(text, found.start() if found else len(text))]))


def masked_screen(text: str) -> str:
    """`text` of a terminal, masked: lines are wrapped anywhere, and what is too long for one ends in an ellipsis."""
    wraps = list(_wraps(text))
    spans = [*spans_of(text), *_cut_at(text, len(text.rstrip()))]
    for match in _ELLIPSES.finditer(text):
        spans += _cut_at(text, match.start())
    if wraps:
        joined = View(text, ((start, end, "") for start, end in wraps))
        for span in spans_of(joined.text):
            start, end = joined.original(span.start, span.end)
            spans.append(Span(start, span.source, end, span.kind))
    return redact(hidden(text, spans))


def _wraps(text: str) -> Iterator[tuple[int, int]]:
    """The ends of lines that are full: what stands there may go on in the next one."""
    lines = [line.strip(_FRAME) for line in text.split("\n")]
    full = max(max(map(len, lines)) - _ROOM, _NARROWEST)
    for line, match in zip(lines, _WRAP.finditer(text), strict=False):
        if len(line) >= full:
            yield match.span()


def _cut_at(text: str, end: int) -> Iterator[Span]:
    """What may be the beginning of a secret that is cut at `end`."""
    start = max(0, end - _LOOKED_AT)
    for way in _WAYS_ON:
        for span in spans_of(text[start:end] + way):
            if start + span.start < end < start + span.end:
                yield Span(start + span.start, span.source, end, span.kind)
