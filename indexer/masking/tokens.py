"""Tokens that are recognized by their shape alone, by the rules in ``vendors.rules`` and ``shapes.rules``.

A token has a long run of letters, digits, "_" and "-" with a digit in it. Ordinary text has none, so one search for
such runs is enough. The start of a run is looked up in a table of the beginnings of vendors' tokens. Therefore the
number of vendors does not matter.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from ahocorasick_rs import BytesAhoCorasick

from indexer.masking.rules import (
    NEAR,
    SHAPE,
    VENDORS,
    Rule,
    Span,
    Vendor,
    alternations,
    compiled,
    is_monotone,
    lines_at,
    literals,
    rules_in,
)
from indexer.masking.value_checks import is_number, is_tangled, is_thrown_together


class Literals:
    """A search for many short, possibly overlapping, lower-case texts in one pass."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        self._literals = tuple(dict.fromkeys(literals))
        self._search = BytesAhoCorasick(self._literals)

    def places_in(self, lower: bytes) -> Mapping[bytes, list[int]]:
        """Return the ascending positions of each short text that is in `lower`."""
        places: dict[bytes, list[int]] = {}
        for number, start, _ in self._search.find_matches_as_indexes(lower, overlapping=True):
            places.setdefault(self._literals[number], []).append(start)
        return places


_TOKEN_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_TOKEN_REST = re.compile("[A-Za-z0-9_-]*+")
#: A run of as many characters as every known token has.
_LONG_RUN = b"a" * 20
_CONTROL = b"c"
_CONTROL_BYTES = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n")
_RUNS = bytes(
    ord("a") if byte in _TOKEN_BYTES else _CONTROL[0] if byte in _CONTROL_BYTES else ord(" ") for byte in range(256)
)
#: Every token has a digit, except those of these two vendors.
_DIGIT = re.compile(rb"[0-9]|A(?:[KS]I|BI|CC)A[A-Z]{16}|hf_[A-Za-z]{34}")
#: Characters that join the parts of a token, and the maximum number of parts before the longest.
_JOINTS, _PARTS = b"./~$|:+!", 6
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_ESCAPED_LINE_ENDS = ("\\n", "\\r", "\\t")
#: The number of characters after the beginning of a token, for vendors with a fixed number.
_WHOLE = {
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_"), 36),
    **dict.fromkeys(("AKIA", "ASIA", "ABIA", "ACCA"), 16),
    "github_pat_": 82,
    "AIza": 35,
}
_RANDOM, _RANDOM_ALONE, _SUM = 20, 32, 40
#: A token of an unknown vendor: a short word, and random characters behind it.
_PREFIXED = (
    r"((?:[a-z][a-z0-9]{1,11}|[A-Z][A-Z0-9]{1,11}|[A-Z][a-z]{1,9})(?:[_.~-][A-Za-z0-9]{1,10}){0,3})[_.~-]"
    r"([A-Za-z0-9_-]{20,}+)(?![A-Za-z0-9_/(]|[.-]\w)"
)
#: Words behind which these characters may be fewer, or a number, because the word names a secret.
_SAYS_SO = (
    r"(?i)(?:^|[_.~-])(?:sk|ak|rk|at|rt|\w*pat|api[_-]?key|\w*key|\w*secret|\w*token|tok|live|oauth|access|"
    r"refresh|priv|private|uat|bearer|webhook|signing|sec|svc\w*|hook)(?:[_.~-][a-z0-9]{1,6}){0,2}$"
)
#: Words behind which random characters are no token: identifiers, and what is public.
_OPEN = (
    r"(?i)(?:^|[_.~-])(?:msgs?|message|resp|rs|fc|req|call|toolu|tool|srvtoolu|chatcmpl|cmpl|gen|run|cs|evt|"
    r"event|files?|"
    r"batch|ftjob|thread|asst|step|users?|org|team|proj|project|sess|session|conv|turn|item|cus|sub|pi|ch|in|price|"
    r"prod|acct|seti|pm|ep|app|node|chunk|vendor|main|index|static|sha\d*|md5|h1|id|uuid|page|cursor|next|trace|span|"
    r"etag|img|image|asset|cache|pk|pub|public|phc|publishable|agent|task|job|build|deploy|dpl|ver|doc|bundle|module|"
    r"css|src|snap|vol|vpc|i|ami|eni|subnet|sg|arn|key-id|client|oauth2|ga|gtm|ua|g|nix|store|layer|rev|commit|did|"
    r"tx|block|addr|ssh|data|base64|hash|integrity|nonce|v\d+|woff2?|font|pod|svc|window|view|cell)$"
)
#: An option of one letter, before its value.
_OPTION = r"(?:^|\s)-[tkpasuTKPAS](?:[ =]|(?=[\"']))[\"']?$"
_RANDOM_KINDS = ("aws-access-key", "webhook")
#: Rules by the literal with which their token is found. Below, the rules that are tried at the beginning of each long
#: run.
_SHAPES = rules_in("shapes")
_BY_ANCHOR = {literal.encode(): number for number, rule in enumerate(_SHAPES) for literal in literals(rule, "near")}
_ANCHORS = Literals(_BY_ANCHOR)
_AT_A_RUN = [(rule["rule"], rule["find"]) for rule in _SHAPES if "near" not in rule]


def runs_of(plain: bytes) -> bytes:
    """Return the class of each byte: ``a`` for token characters, ``c`` for control characters, else a blank."""
    return plain.translate(_RUNS)


def has_controls(runs: bytes) -> bool:
    """Return True if a text has control characters. `runs` are its character classes (see `runs_of`)."""
    return _CONTROL in runs


def tokens_in(text: str, plain: bytes, runs: bytes, starts: Sequence[int]) -> Iterator[Span]:
    """Yield the tokens in `text`. `starts` are the starts of long runs of token characters (see `runs_of`)."""
    end = 0
    for start in starts:
        if start >= end:  # what is inside a token is hidden with it, and need not be read again
            for span in _vendors_at(text, plain, runs, start):
                end = max(end, span.end)
                yield span
    lines = lines_at(plain, starts)
    candidates = b"\n".join([plain[start:end] for start, end in lines])
    for number in dict.fromkeys(map(_BY_ANCHOR.__getitem__, _ANCHORS.places_in(candidates))):
        yield from _matches(_SHAPES[number], text, lines)


def long_runs(plain: bytes, runs: bytes) -> Iterator[int]:
    """Yield the start of each run of token characters (see `runs_of`) that has a digit and is as long as a token."""
    position = runs.find(_LONG_RUN)
    while position >= 0:
        end = runs.find(b" ", position + len(_LONG_RUN))
        end = len(runs) if end < 0 else end
        if _DIGIT.search(plain, position, end):
            yield position
        position = runs.find(_LONG_RUN, end)


# --- what vendors' tokens begin with ----------------------------------------------------------------------------------


@cache
def _shapes() -> dict[str, list[tuple[str, Vendor]]]:
    """Return the beginnings of all vendors' tokens, each with its vendor, by their first two characters."""
    shapes: dict[str, list[tuple[str, Vendor]]] = defaultdict(list)
    for vendor in VENDORS:
        for beginning in vendor.beginnings:
            shapes[beginning[:2]].append((beginning, vendor))
    return shapes


def is_begun(text: str, start: int, end: int, rest: bool) -> bool:  # noqa: FBT001
    """Return True if the text between two positions is only the beginning of a known kind of token.

    `rest`: the following text looks like the rest of a token. Only kinds without a fixed length need it.
    """
    shapes = [one for one in _shapes().get(text[start : start + 2], ()) if text.startswith(one[0], start)]
    return any(end - start >= max(len(beginning), 4) for beginning, _ in shapes) and not any(
        end - start >= len(beginning) + _WHOLE.get(beginning, 0)
        and compiled(vendor.follows).match(text, start + len(beginning), end)
        and not (rest and beginning not in _WHOLE)
        for beginning, vendor in shapes
    )


@cache
def _any_at_a_run() -> re.Pattern[str]:
    return compiled("|".join(pattern for _, pattern in _AT_A_RUN))


def _vendors_at(text: str, plain: bytes, runs: bytes, start: int) -> Iterator[Span]:
    """Yield the tokens of known vendors whose longest run of token characters begins at `start`."""
    shapes = _shapes()
    for at in _beginnings(text, plain, runs, start):
        for beginning, vendor in shapes.get(text[at : at + 2], ()):
            if not text.startswith(beginning, at):
                continue
            match = compiled(vendor.follows).match(text, at + len(beginning))
            if match and match.end() > start and "EXAMPLE" not in match[0] and _random(match[0], certain=vendor.exact):
                yield Span(at, SHAPE, _token_end(text, match.end()), vendor.kind)
        for kind, pattern in _AT_A_RUN if _any_at_a_run().match(text, at) else ():
            match = compiled(pattern).match(text, at)
            if match and not is_monotone(match[0]) and (kind != "wallet-key" or is_wallet_key(match[0])):
                yield Span(at, SHAPE, _token_end(text, match.end()), kind)
        if _says_so(text, at) or _is_option(text, at):
            yield Span(at, NEAR, _token_end(text, at), "token")


def _says_so(text: str, start: int) -> bool:
    """Return True if a prefix and random characters at `start` are a secret.

    A prefix that names a secret, such as "sk_", needs few random characters; one of unknown meaning needs many. The
    prefix of a public key never counts.
    """
    if start and text[start - 1 : start + 1] in _ESCAPED_LINE_ENDS:
        return False
    found = compiled(_PREFIXED).match(text, start)
    if found is None:
        return False
    word, follows = found.groups()
    if word.startswith(("pk", "pub")):  # to be shown to everybody
        return False
    if compiled(_SAYS_SO).search(word):
        return is_thrown_together(follows) or is_number(follows)
    return (
        len(follows) >= _RANDOM_ALONE
        and is_thrown_together(follows)
        and text[start - 1 : start] not in ("/", ".", "#", "-", "_")
        and not compiled(_OPEN).search(word)
    )


def _is_option(text: str, start: int) -> bool:
    """Return True if a random value of a one-letter option, such as "-p", begins at `start`."""
    if compiled(_OPTION).search(text, max(0, start - 6), start) is None:
        return False
    end = _token_end(text, start)
    value = text[start:end]
    return is_thrown_together(value) or (is_number(value) and len(value) != _SUM) if len(value) >= _RANDOM else False


def _beginnings(text: str, plain: bytes, runs: bytes, start: int) -> Iterator[int]:
    """Yield the positions at which a token may begin: `start`, and the starts of parts joined before it, as by dots."""
    yield start
    if text[start - 1 : start + 1] in _ESCAPED_LINE_ENDS and start:
        yield start + 1
    for _ in range(_PARTS):
        if not start or plain[start - 1] not in _JOINTS:
            return
        before = start - 1
        while before and plain[before - 1] in _JOINTS and start - before < _PARTS:
            before -= 1
        start = max(runs.rfind(b" ", 0, before), runs.rfind(_CONTROL, 0, before)) + 1
        if start == before:
            return
        yield start
        if text[max(0, start - 1) : start + 1] in _ESCAPED_LINE_ENDS:
            yield start + 1


def is_wallet_key(text: str) -> bool:
    """Return True if `text` is a Bitcoin wallet's private key: its last four bytes are a checksum of the others."""
    number = 0
    for letter in text:
        number = number * 58 + _BASE58.index(letter)
    raw = number.to_bytes(40, "big").lstrip(b"\0")
    return hashlib.sha256(hashlib.sha256(raw[:-4]).digest()).digest()[:4] == raw[-4:]


def _random(follows: str, *, certain: bool) -> bool:
    """Return True if `follows`, the text behind a token's beginning, is random: names may begin like tokens, too.

    If the vendor's pattern is exact (`certain`), any text that does not repeat itself counts as random.
    """
    return not is_monotone(follows) and (certain or alternations(follows[:200]) >= 2 or is_tangled(follows))


# --- shapes that need more than that ----------------------------------------------------------------------------------


def _matches(rule: Rule, text: str, lines: list[tuple[int, int]]) -> Iterator[Span]:
    for start, end in lines:
        for match in compiled(rule["find"]).finditer(text, start, end):
            group = match.lastindex or 0
            if not is_monotone(match[group]) and (rule["rule"] not in _RANDOM_KINDS or alternations(match[group]) >= 4):
                yield Span(match.start(group), SHAPE, match.end(group), rule["rule"])


def _token_end(text: str, end: int) -> int:
    """Return the end of the run of token characters at `end`, so that the whole of a longer token is masked."""
    return _TOKEN_REST.match(text, end).end()  # type: ignore[union-attr]
