"""Finds secrets by the words around them: phrases are words with a secret between them.

``phrases.rules`` has those of programs, ``prose.rules`` those of sentences, ``commands.rules`` options of commands.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from indexer.masking.nouns import speaks_abroad
from indexer.masking.rules import VENDORS, Rule, compiled, literals, rules_in
from indexer.masking.spans import HIDDEN, PHRASE, SHAPE, Span, lines_at, monotone
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
from indexer.patterns import late
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
        tuple(map(str.encode, literals(rule, "if") if "if" in rule else anchors)),
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
for _one in _TOLD:
    for _sign in _one.words or _one.signs if _one not in _ABROAD else ():
        _BY_SIGN[_sign].append(_one)
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


#: Short options that a password may follow.
_OPTION = late(rb" -(?:[a-z]{0,3}u|[pawnk]|hp|-pass|-user|-auth|-proxy-user|pass|storep|keyp|destst|srcst)")
#: The characters of programs' names, with blanks for all other bytes.
_NAMES = bytes(
    byte if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "_.-") else 32 for byte in range(256)
)


def commands_in(text: str, lower: bytes) -> Iterator[Span]:
    """Yield the passwords behind options of commands."""
    if options := [found.start() for found in _OPTION.finditer(lower)]:
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
