"""Where secrets are in a text, however it has to be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from indexer.masking.assignments import STEMS, assignments_in
from indexer.masking.keys import private_keys
from indexer.masking.masked import MARK
from indexer.masking.phrases import PHRASES, commands_in, phrases_in
from indexer.masking.signs import Signs
from indexer.masking.spans import HIDDEN, Span
from indexer.masking.tokens import has_controls, has_long_runs, runs_of, tokens_in
from indexer.masking.view import other_readings
from indexer.patterns import late

_MASK = late(r"\[REDACTED:[a-z0-9-]{1,40}\]")
#: Of these a text has one if it says something of secrets, however it is written: no escape hides them all.
_TELLING = frozenset((b"pass", b"secret", b"token", b"key", b"auth", b"bearer", b"://", b":\\/", b"u001b"))
#: Of these it has one if words tell of a secret in it.
_SIGNS = Signs((*STEMS, *PHRASES, *_TELLING, b"-----begin", b"private-lines:"))


def redact(text: str) -> str:
    """`text` with every secret in it replaced. Doing it again changes nothing."""
    # A second round sees what only a mask beside it made into a secret of its own. It ends: each round hides more.
    while spans := spans_of(text):
        text = hidden(text, spans)
    return text


def redact_parts(parts: Sequence[str]) -> list[str]:
    """Texts that were cut from one, each masked as it would be there."""
    spans: list[list[Span]] = [[] for _ in parts]
    for by in ("\n", ""):  # where white space was left out, and in the midst of a word
        found = spans_of(by.join(parts))
        start = 0
        for number, part in enumerate(parts):
            for span in found:
                begin, end = max(0, span.start - start), min(len(part), span.end - start)
                if begin < end:
                    spans[number].append(Span(begin, span.source, end, span.kind))
            start += len(part) + len(by)
    return [redact(hidden(part, inside)) for part, inside in zip(parts, spans, strict=True)]


def hidden(text: str, spans: Iterable[Span]) -> str:
    """`text` with a mask for each of `spans`; where two overlap, the first names the kind."""
    pieces: list[str] = []
    position = 0
    for span in sorted(spans):
        if span.start >= position:
            pieces += [text[position : span.start], f"{MARK}{span.kind}]"]
        position = max(position, span.end)  # a longer match over the same secret: its tail goes as well
    pieces.append(text[position:])
    return "".join(pieces)


def spans_of(text: str) -> list[Span]:
    """Where secrets are."""
    text = _MASK.sub(lambda mask: HIDDEN * len(mask[0]), text) if MARK in text else text  # what is hidden already
    # One byte a character whatever the text: substring searches are fast, and positions are the text's own.
    plain = text.encode("ascii", "replace")
    lower, runs = plain.lower(), runs_of(plain)
    signs = _SIGNS.found_in(lower)
    spans = _read(text, plain, lower, runs, signs)
    odd, telling = not text.isascii() or has_controls(runs), not _TELLING.isdisjoint(signs) or b"pwd" in lower
    if not (odd or telling or b"[0m" in plain):
        return spans
    for reading in other_readings(text, plain, odd=odd, telling=telling):
        there = reading.text.encode("ascii", "replace")
        lower = there.lower()
        for span in _read(reading.text, there, lower, runs_of(there), _SIGNS.found_in(lower)):
            start, end = reading.original(span.start, span.end)
            spans.append(Span(start, span.source, end, span.kind))
    return spans


def _read(text: str, plain: bytes, lower: bytes, runs: bytes, signs: AbstractSet[bytes]) -> list[Span]:
    """Where secrets are in a text that is read in one way; nothing is looked for of which there is no sign."""
    spans = list(tokens_in(text, plain, runs)) if has_long_runs(runs) else []
    if signs:
        spans += [*private_keys(text, plain), *phrases_in(text, lower, signs), *assignments_in(text, lower, signs)]
    if b" -" in lower:
        spans += commands_in(text, lower)
    return spans
