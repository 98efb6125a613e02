"""Search for all secrets of a text, in each form in which the text can be read, such as decoded or unwrapped.

At the end of a truncated text, a possible beginning of a secret counts as a secret if some continuation makes it one.
Texts that a log splits, such as lists of lines or of hunks, are masked as one text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import Any, NamedTuple

from indexer.lazy_compilation import late
from indexer.masking.alternate_readings import View, as_seen, joined, other_readings, texts_in
from indexer.masking.assignments import STEMS, assigned_to, assignments_in
from indexer.masking.multiline_blocks import ANSWER_LITERALS, ANSWER_WORDS, BLOCK_WORDS, answers_in, blocks_in
from indexer.masking.phrases import (
    NEAR_WORDS,
    PHRASE_ANCHORS,
    PHRASE_SIGNS,
    PHRASE_WORDS,
    commands_in,
    hashes_in,
    keys_in,
    phrases_abroad,
    phrases_in,
    strange_behind,
    strange_in,
)
from indexer.masking.rules import HIDDEN, MARK, SHAPE, Span, expanded
from indexer.masking.tokens import Literals, has_controls, is_begun, long_runs, runs_of, tokens_in
from indexer.masking.value_checks import STEM_WORDS, goes_on, is_hard, is_key_pair, nouns_in

#: A table that keeps the bytes of words, and replaces all others by blanks.
_LETTERS = bytes(byte if chr(byte).isascii() and chr(byte).isalnum() else 32 for byte in range(256))

_GOES_ON = late(expanded("{goes_on}"))
_MASK = late(r"\[REDACTED:[a-z0-9-]{1,40}\]")
#: A text that mentions secrets has one of these, even if parts of it are escaped.
_TELLING = frozenset((b"pass", b"secret", b"token", b"key", b"auth", b"bearer", b"://", b":\\/", b"u001b"))
#: A text with words that hint at a secret has one of these texts,
_SIGNS = frozenset((*STEMS, *PHRASE_SIGNS, *_TELLING, b"-----begin", b"private-lines:"))
#: or one of these whole words.
_WORDS = frozenset((*PHRASE_WORDS, *BLOCK_WORDS, *ANSWER_WORDS, *NEAR_WORDS, *STEM_WORDS))
#: The beginnings of characters that are written as escapes.
_SPELLS = frozenset((b"\\x", b"\\u00", b"\\1", b"&#", b"%6", b"%7"))
_LITERALS = Literals((*_SIGNS, *_SPELLS, *PHRASE_ANCHORS, *STEM_WORDS, *NEAR_WORDS, *ANSWER_LITERALS))
_TAB = 9
#: Minimum and maximum length of secrets that are searched for elsewhere in the text, and their maximum number. Shorter
#: ones may be words.
_LEAST_KNOWN, _MOST_KNOWN, _MANY = 12, 500, 100
#: How many encodings inside each other, such as base64, are decoded.
_DEPTH = 2


def redact(text: str) -> str:
    """Replace each secret in `text` by a mask. Masking a masked text changes nothing."""
    # A second round sees what only a mask beside it made into a secret of its own. It ends: each round hides more.
    while spans := spans_of(text):
        found = known_from(text, spans)
        text = masked_spans(text, spans)
        for secret in found:
            text = text.replace(secret, f"{MARK}secret]")
    return text


def known_from(text: str, spans: Iterable[Span]) -> list[str]:
    """Return the secrets at `spans` that must be masked wherever they occur in the text: passwords and keys."""
    found = [text[one.start : one.end] for one in spans if _LEAST_KNOWN <= one.end - one.start < _MOST_KNOWN]
    return [secret for secret in dict.fromkeys(found[:_MANY]) if is_hard(secret)]


def masked_spans(text: str, spans: Iterable[Span]) -> str:
    """Return `text` with a mask in place of each of `spans`. Of two that overlap, the first one names the kind."""
    pieces: list[str] = []
    position = 0
    for span in sorted(spans):
        if span.start >= position:
            pieces += [text[position : span.start], f"{MARK}{span.kind}]"]
        position = max(position, span.end)  # a longer match over the same secret: its tail goes as well
    pieces.append(text[position:])
    return "".join(pieces)


def spans_of(text: str, depth: int = 0) -> list[Span]:
    """Return the positions of all secrets in a text. `depth` counts the encodings that were decoded to get the text."""
    text = _MASK.sub(lambda mask: HIDDEN * len(mask[0]), text) if MARK in text else text  # what is hidden already
    read = _looked_at(text)
    spans = _read(read, depth)
    spans += _going_on(text, spans)
    tabs = any(read.plain[at - 1] == _TAB for at in read.tokens if at)
    spans += blocks_in(text, read.lower, read.signs, read.places, tabs=tabs)
    if read.tokens and (reading := joined(text, read.plain, read.tokens, is_begun)):
        spans += _read_as(reading, _read(_looked_at(reading.text), depth, whole=False))
    ascii_only = text.isascii()
    if not ascii_only:
        spans += phrases_abroad(text, read.plain)
    odd = not ascii_only or has_controls(read.runs)
    telling = not _TELLING.isdisjoint(read.signs) or b"pwd" in read.lower
    if odd and depth < _DEPTH and (seen := as_seen(text)):  # what nobody sees may also be where a token is broken
        for reading in seen:
            spans += _read_as(reading, spans_of(reading.text, depth + 1))
    spelled = not _SPELLS.isdisjoint(read.places)
    rare = b"[0m" in read.plain or b"'-" in read.plain or b'"-' in read.plain
    for reading in (
        other_readings(text, read.plain, telling=telling, spelled=spelled) if telling or spelled or rare else ()
    ):
        spans += _read_as(reading, _read(_looked_at(reading.text), depth))
    return spans


def _going_on(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the part in the next line of each secret that a line end splits."""
    for span in spans:
        rest = _GOES_ON.match(text, span.end)
        if rest and goes_on(text[span.start : span.end], rest[1]):
            yield Span(rest.start(1), span.source, rest.end(1), span.kind)


class _Text(NamedTuple):
    """A text with what the rules need to search it.

    `plain` and its lower-case form `lower` have one byte for each character. `runs` has the class of each character
    (see `tokens.runs_of`), and `tokens` the starts of long runs of token characters. `signs` are the words and literals
    that hint at secrets, and `places` the positions of the literals.
    """

    text: str
    plain: bytes
    lower: bytes
    runs: bytes
    tokens: Sequence[int]
    signs: AbstractSet[bytes]
    places: Mapping[bytes, list[int]]


def _looked_at(text: str) -> _Text:
    plain = text.encode("ascii", "replace")
    lower, runs = plain.lower(), runs_of(plain)
    places = _LITERALS.places_in(lower)
    signs = _WORDS.intersection(lower.translate(_LETTERS).split()) | _SIGNS.intersection(places)
    return _Text(text, plain, lower, runs, list(long_runs(plain, runs)), signs, places)


def _read(read: _Text, depth: int, *, whole: bool = True) -> list[Span]:
    """Return the secrets of a text, skipping each rule for which the text has none of the necessary words.

    `depth` counts the encodings that were decoded to get the text. If `whole` is False, skip long random words.
    """
    text, lower, signs, places = read.text, read.lower, read.signs, read.places
    spans = list[Span]()
    if read.tokens:
        spans += tokens_in(text, read.plain, read.runs, read.tokens)
        spans += keys_in(text, read.plain, read.tokens) if whole else ()
        for start, end, said in texts_in(read.plain, read.tokens) if depth < _DEPTH else ():
            kinds = ["secret"] if is_key_pair(said) else [inside.kind for inside in spans_of(said, depth + 1)[:1]]
            spans += [Span(start, SHAPE, end, kind) for kind in kinds]
    spans += hashes_in(text, lower)
    if signs:
        spans += [*private_keys(text, read.plain), *phrases_in(text, lower, signs, places)]
        spans += [*assignments_in(text, lower, signs, places), *answers_in(text, lower, signs, places)]
        spans += strange_in(text, lower, signs, places)
    if b" -" in lower:
        spans += commands_in(text, lower)
    for noun in nouns_in(text) if not text.isascii() else ():
        spans += [*assigned_to(text, noun), *strange_behind(text, lower, noun)]
    return spans


def _read_as(reading: View, spans: Iterable[Span]) -> Iterator[Span]:
    """Yield secrets of another reading of a text (see `View`) at their positions in the original text."""
    for span in spans:
        start, end = reading.original(span.start, span.end)
        yield Span(start, span.source, end, span.kind)


# Private keys as files hold them: blocks between two lines, with real or escaped line ends

_EDGE = r"(?:[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1|[A-Z ]{0,20}NKEY SEED) ?-----?"
_BODY_LIMIT, _TAIL_LIMIT = 32_768, 4_096
_BEGIN = late(rf"-----? ?BEGIN {_EDGE}")
_WHOLE = late(rf"((?>(?:[^-{HIDDEN}]++|-(?!--- ?-?)|-(?=-----END))*))-----? ?END {_EDGE}")
#: What may be between the lines of a key: what quotations, diffs and numbered listings put before a line.
_BETWEEN = r"(?>(?:\\[nrt]|[\s\"'+>|-]|\d{1,6}(?:[→:|\t]|\\t)){1,24})"
#: What follows a header whose end is missing: only lines of base64, of which the last one may be truncated.
_CUT = late(rf"(?>(?:(?>{_BETWEEN}?)[A-Za-z0-9+/=]{{32,}}+)+)(?:{_BETWEEN}[A-Za-z0-9+/=]{{1,31}}+\Z)?")
#: An end whose header is missing, and the lines before it.
_END = late(rf"-----? ?END {_EDGE}")
_BODY = late(rf"(?>(?:[A-Za-z0-9+/=]{{16,}}+{_BETWEEN})+)(?:[A-Za-z0-9+/=]{{1,15}}{_BETWEEN})?$")
_BASE64_RUN = late(r"[A-Za-z0-9+/]{16}")
_PUTTY = late(r"Private-Lines: \d{1,4}\s{1,4}((?>(?:[A-Za-z0-9+/=]{16,}+\s{0,4})+)(?:Private-MAC: [0-9a-f]{40,}+)?)")


def private_keys(text: str, plain: bytes) -> Iterator[Span]:
    """Yield private keys: whole blocks, and blocks with a missing part. A header alone is no secret."""
    if b"---" not in plain and b"Private-Lines:" not in plain:
        return
    for begin in _BEGIN.finditer(text) if b"---BEGIN" in plain or b"---- BEGIN" in plain else ():
        whole = _WHOLE.match(text, begin.end(), begin.end() + _BODY_LIMIT)
        if whole and _BASE64_RUN.search(whole[1]):
            yield Span(begin.start(), SHAPE, whole.end(), "private-key")
        elif not whole and (cut := _CUT.match(text, begin.end())):
            yield Span(begin.start(), SHAPE, cut.end(), "private-key")
    done = -1
    for end in _END.finditer(text) if b"---END" in plain or b"---- END" in plain else ():
        begun = _BEGIN.search(text, max(done, end.start() - _BODY_LIMIT, 0), end.start())
        if begun is None and (body := _BODY.search(text, max(done, end.start() - _TAIL_LIMIT, 0), end.start())):
            yield Span(body.start(), SHAPE, end.end(), "private-key")
        done = end.end()
    for match in _PUTTY.finditer(text) if b"Private-Lines:" in plain else ():
        yield Span(match.start(1), SHAPE, match.end(1), "private-key")


_MIXED, _HEX, _UPPER = "k7Q2m9X4" * 14, "4e7a1f09" * 16, "K7Q2M9X4" * 14
#: How a truncated text may continue: with the characters, parts and endings of each kind of secret.
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
#: Number of characters before a cut that are searched for the beginning of a secret.
_LOOKED_AT = 4096
_ELLIPSIS = late(r"\s*(?:…|\.\.\.)\s*\Z")
_ELLIPSES = late(r"…|\.\.\.")
#: Blanks and lines of boxes, around which a terminal continues a line in the next one.
_FRAME = " \t│┃┆|─━╭╮╰╯┌┐└┘"
#: A line counts as full if the longest line has at most this many characters more; and the minimum width of a terminal.
_ROOM, _NARROWEST = 8, 40
_WRAP = late(r"[ \t]*[│┃┆|]?[ \t]*\n[ \t]*[│┃┆|]?[ \t]*")


def masked_before_a_cut(text: str) -> str:
    """Mask a truncated `text`, including a possible beginning of a secret at its end."""
    found = _ELLIPSIS.search(text)
    return redact(masked_spans(text, [*spans_of(text), *_cut_at(text, found.start() if found else len(text))]))


def masked_screen(text: str) -> str:
    """Mask a terminal's screen, on which lines may wrap anywhere, and long lines end in an ellipsis."""
    wraps = list(_wraps(text))
    spans = [*spans_of(text), *_cut_at(text, len(text.rstrip()))]
    for match in _ELLIPSES.finditer(text):
        spans += _cut_at(text, match.start())
    if wraps:
        joined = View(text, ((start, end, "") for start, end in wraps))
        spans += _read_as(joined, spans_of(joined.text))
    return redact(masked_spans(text, spans))


def _wraps(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each line end that may be only a wrap: the line before it fills the terminal's width."""
    lines = [line.strip(_FRAME) for line in text.split("\n")]
    full = max(max(map(len, lines)) - _ROOM, _NARROWEST)
    for line, match in zip(lines, _WRAP.finditer(text), strict=False):
        if len(line) >= full:
            yield match.span()


def _cut_at(text: str, end: int) -> Iterator[Span]:
    """Yield possible beginnings of a secret that is truncated at the position `end` of `text`."""
    start = max(0, end - _LOOKED_AT)
    for way in _WAYS_ON:
        for span in spans_of(text[start:end] + way):
            if start + span.start < end < start + span.end:
                yield Span(start + span.start, span.source, end, span.kind)


#: Minimum length of a secret in an output that is looked for elsewhere in the session.
_LEAST_ELSEWHERE = 8
#: Lines of a private key. They are secret even if nothing around them says so.
_KEY_LINE = late(r"(?:(?<!\\)|(?<=\\[nrt]))[A-Za-z0-9+/]{24,}={0,2}")


def hidden_in_parts(parts: Sequence[str], spans: Iterable[Span]) -> list[str]:
    """Return `parts` with masks in place of `spans`, which are positions in the parts joined as lines."""
    return _hidden(parts, _inside(parts, spans, "\n"))


def redact_parts(parts: Sequence[str]) -> list[str]:
    """Mask parts of one text. Secrets are found in the parts joined as lines, and joined without a separator."""
    inside = [(by, spans_of(by.join(parts))) for by in ("\n", "")]
    spans = [
        [*lines, *words] for lines, words in zip(*(_inside(parts, found, by) for by, found in inside), strict=True)
    ]
    return [redact(part) for part in _hidden(parts, spans)]


def _inside(parts: Sequence[str], spans: Iterable[Span], by: str) -> list[list[Span]]:
    """Return the spans in each of `parts`. The given `spans` are positions in the parts joined with `by`."""
    inside: list[list[Span]] = [[] for _ in parts]
    starts = list(accumulate((len(part) + len(by) for part in parts), initial=0))
    for span in spans:
        for number in range(bisect_right(starts, span.start) - 1, bisect_left(starts, span.end)):
            begin, end = max(0, span.start - starts[number]), min(len(parts[number]), span.end - starts[number])
            if begin < end:
                inside[number].append(Span(begin, span.source, end, span.kind))
    return inside


def _hidden(parts: Sequence[str], inside: Iterable[list[Span]]) -> list[str]:
    return [masked_spans(part, spans) if spans else part for part, spans in zip(parts, inside, strict=True)]


def together(
    values: list[Any], change: Callable[[list[str]], list[str]], fixed: Callable[[str, Any], bool]
) -> list[Any]:
    """Apply `change` to a list from a log in which consecutive values belong to one text.

    A list of strings is changed as one text. In a list of objects, all values of a field are changed as one text,
    except fields for which `fixed` returns True.
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
    """Return the lines of the private keys in a text, without a leading plus of a diff."""
    keys = [span for span in spans_of(text) if span.kind == "private-key"] if "PRIVATE KEY" in text else []
    return {line.lstrip("+") for span in keys for line in _KEY_LINE.findall(text, span.start, span.end)}


def lines_at(text: str, lines: Collection[str]) -> list[Span]:
    """Return the positions of `lines`, which are lines of private keys, in a text."""
    return [
        Span(found.start(), SHAPE, found.end(), "private-key")
        for found in (_KEY_LINE.finditer(text) if lines else ())
        if found[0].lstrip("+") in lines
    ]


def secrets_in_output(command: str, output: str) -> set[str]:
    """Return the secrets in a command's output that are recognized by the command, such as `cat password.txt`."""
    asked = f"$ {command.rstrip().rpartition(chr(10))[2]}\n"
    alone = redact(output)
    found = {(asked + output)[span.start : span.end] for span in spans_of(asked + output) if span.start >= len(asked)}
    return {secret for secret in found if secret in alone and len(secret) >= _LEAST_ELSEWHERE}
