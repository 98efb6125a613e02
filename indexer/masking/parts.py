"""Texts that a log cuts up: lists of lines, of hunks, of parts. What is one text for people is masked as one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any

from indexer.masking.secrets import hidden, redact, spans_of
from indexer.masking.spans import SHAPE, Span
from indexer.patterns import late

#: What is shorter is not looked for elsewhere.
_LEAST_KNOWN = 8
#: Lines of a private key. They are secret also where nothing around them says so.
_KEY_LINE = late(r"(?:(?<!\\)|(?<=\\[nrt]))[A-Za-z0-9+/]{24,}={0,2}")


def hidden_in_parts(parts: Sequence[str], spans: Iterable[Span]) -> list[str]:
    """`parts` with a mask for each of `spans`, which are in the text that they make as lines."""
    return _hidden(parts, _inside(parts, spans, "\n"))


def redact_parts(parts: Sequence[str]) -> list[str]:
    """Texts that were cut from one, each masked as it would be there: where white space was left out, and in words."""
    inside = [(by, spans_of(by.join(parts))) for by in ("\n", "")]
    spans = [
        [*lines, *words] for lines, words in zip(*(_inside(parts, found, by) for by, found in inside), strict=True)
    ]
    return [redact(part) for part in _hidden(parts, spans)]


def _inside(parts: Sequence[str], spans: Iterable[Span], by: str) -> list[list[Span]]:
    """The same spans in each part."""
    inside: list[list[Span]] = [[] for _ in parts]
    starts = list(accumulate((len(part) + len(by) for part in parts), initial=0))
    for span in spans:
        for number in range(bisect_right(starts, span.start) - 1, bisect_left(starts, span.end)):
            begin, end = max(0, span.start - starts[number]), min(len(parts[number]), span.end - starts[number])
            if begin < end:
                inside[number].append(Span(begin, span.source, end, span.kind))
    return inside


def _hidden(parts: Sequence[str], inside: Iterable[list[Span]]) -> list[str]:
    return [hidden(part, spans) if spans else part for part, spans in zip(parts, inside, strict=True)]


def together(
    values: list[Any], change: Callable[[list[str]], list[str]], fixed: Callable[[str, Any], bool]
) -> list[Any]:
    """A list in which texts that follow each other are changed as one, and the same field of objects that do.

    Fields that are `fixed` stay.
    """
    if len(values) < 2:
        return values
    if all(isinstance(value, str) for value in values):
        return change(values)
    if not all(isinstance(value, dict) for value in values):
        return values
    changed = [dict(value) for value in values]
    for name in values[0]:
        texts = [value[name] for value in changed if isinstance(value.get(name), str)]
        if len(texts) > 1 and not fixed(name, texts[0]):
            new = iter(change(texts))
            for value in changed:
                if isinstance(value.get(name), str):
                    value[name] = next(new)
    return changed


def key_lines(text: str) -> set[str]:
    """The lines of the private keys in a text, without a plus before them: a difference may have put it there."""
    keys = [span for span in spans_of(text) if span.kind == "private-key"] if "PRIVATE KEY" in text else []
    return {line.lstrip("+") for span in keys for line in _KEY_LINE.findall(text, span.start, span.end)}


def lines_at(text: str, lines: Collection[str]) -> list[Span]:
    """Where such lines are in a text."""
    return [
        Span(found.start(), SHAPE, found.end(), "private-key")
        for found in (_KEY_LINE.finditer(text) if lines else ())
        if found[0].lstrip("+") in lines
    ]


def answered(command: str, output: str) -> set[str]:
    """The secrets in what a command has printed that are none without the command."""
    asked = f"$ {command.rstrip().rpartition(chr(10))[2]}\n"
    alone = redact(output)
    found = {(asked + output)[span.start : span.end] for span in spans_of(asked + output) if span.start >= len(asked)}
    return {secret for secret in found if secret in alone and len(secret) >= _LEAST_KNOWN}
