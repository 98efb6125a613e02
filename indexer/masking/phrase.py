"""Reads phrases, which are words with a secret between them, and finds them in texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from indexer.masking.rules import Rule, compiled, literals, rules_in
from indexer.masking.spans import HIDDEN, PHRASE, Span, lines_at, monotone
from indexer.masking.values import (
    is_base64_pair,
    is_chosen,
    is_coined,
    is_dense,
    is_hard,
    is_identity,
    is_long,
    is_mixed,
    is_opaque,
    is_strange,
    is_strong,
    is_tangled,
    is_told,
    is_unlike_words,
    is_worded,
    looks_random,
    placeholder,
)
from indexer.shapes import dataclass

_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "any": lambda value: True,  # noqa: ARG005
    "key": lambda value: looks_random(value) and "_" not in value and not is_identity(value),
    "long": is_long,
    "dense": is_dense,
    "chosen": lambda value: is_told(value) and (is_chosen(value) or looks_random(value)),
    "given": lambda value: is_hard(value) or is_told(value) or (" " in value and is_worded(value)),
    "hard": lambda value: is_hard(value) or is_coined(value),
    "mixed": is_mixed,
    "opaque": is_opaque,
    "decoded": lambda value: is_base64_pair(value, told=True),
    "pair": is_base64_pair,
    "random": lambda value: looks_random(value, lenient=True) or is_tangled(value),
    "strong": lambda value: is_strong(value) or is_coined(value),
    "strange": is_strange,
    "told": is_told,
    "unlike": is_unlike_words,
    "worded": is_worded,
}


@dataclass(frozen=True, slots=True, eq=False)  # told apart as objects: their long texts are compared nowhere
class Phrase:
    """Words with a secret between them, which is the last group of the pattern. All literals are in lower case.

    A line has one of `anchors`. A text has one of `words` as a whole word, or else one of `signs`. `least` is the
    check that a value passes. With `whole` the pattern may go over several lines, with `reach` so many characters
    beyond a line; with `begins` it starts with an anchor.
    """

    kind: str
    anchors: tuple[bytes, ...]
    signs: tuple[bytes, ...]
    words: tuple[bytes, ...]
    pattern: str
    least: str = "any"
    whole: bool = False
    reach: int = 0
    begins: bool = False


def phrases_of(name: str) -> list[Phrase]:
    """Return the phrases of a file of rules."""
    return [_phrase(rule) for rule in rules_in(name)]


def _phrase(rule: Rule) -> Phrase:
    kind, *options = rule["rule"].split()
    words, pattern = rule.get("words", ""), rule.get("find", "")
    anchors = literals(rule, "near")
    if calls := rule.get("call"):
        pattern = rf"(?i:{calls.replace('.', '[.]')})\(\s{{0,12}}[bf@]?(?:{{other}}){{{rule['after']}}}{{text}}"
        anchors = tuple(f"{name}(" for name in calls.split("|"))
        words = words or re.sub(r"\W|_", " ", calls)
        options.append("begins")
    elif programs := rule.get("runs"):
        order = rf"{{arguments}}{rule['order']}" if "order" in rule else ""
        pattern = rf"{{program}}(?:{programs})(?:\.exe)?{order}{{arguments}}(?:{rule['behind']}){{value}}"
        anchors = tuple(programs.split("|"))
    return Phrase(
        kind,
        tuple(map(str.encode, anchors)),
        tuple(map(str.encode, literals(rule, "if") or anchors)),
        tuple(map(str.encode, words.replace("␣", " ").split())),
        pattern,
        rule.get("check", "any"),
        whole="whole" in options,
        reach=int(rule.get("reach", 0)),
        begins="begins" in options,
    )


def found_in(phrase: Phrase, text: str, lower: bytes, places: Iterable[int]) -> Iterator[Span]:
    """Yield the secrets of a phrase in `text`, which is `lower` with one byte a character and no capitals.

    `places` are where its anchors begin.
    """
    if phrase.begins:
        matches = (compiled(phrase.pattern).match(text, place) for place in places)
        yield from (span for match in matches if match for span in _secret(phrase, match))
    else:
        lines = [(0, len(text))] if phrase.whole else lines_at(lower, sorted(places))
        yield from found_at(phrase, text, _stretched(lines, phrase.reach) if phrase.reach else lines)


def _stretched(lines: list[tuple[int, int]], reach: int) -> list[tuple[int, int]]:
    """Return the lines with `reach` more characters each; lines that then touch become one."""
    stretches = lines[:1]
    for start, end in lines[1:]:
        first, last = stretches[-1]
        if start <= last + reach:
            stretches[-1] = (first, end)
        else:
            stretches.append((start, end))
    return [(start, end + reach) for start, end in stretches]


def found_at(phrase: Phrase, text: str, lines: list[tuple[int, int]]) -> Iterator[Span]:
    """Yield the secrets of a phrase in parts of `text`."""
    for start, end in lines:
        for match in compiled(phrase.pattern).finditer(text, start, end):
            yield from _secret(phrase, match)


def _secret(phrase: Phrase, match: re.Match[str]) -> Iterator[Span]:
    group = match.lastindex
    if not group or HIDDEN in (value := match[group]) or monotone(value) or placeholder(value):
        return
    if _CHECKS[phrase.least](value):
        yield Span(match.start(group), PHRASE, match.end(group), phrase.kind)
