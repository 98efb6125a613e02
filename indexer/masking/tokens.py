"""Tokens that are known by their shape alone.

They are looked for only where a long run of token characters with a digit is: ordinary text has none, and costs one
search for such runs. What a vendor's token begins with is looked up where a run, or what a dot joins to it, begins, so
that it does not matter how many vendors there are.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from indexer.masking.spans import NEAR, SHAPE, Span, changes, lines_at, monotone
from indexer.masking.values import is_number, is_thrown_together
from indexer.masking.vendors import VENDORS

_TOKEN = "[A-Za-z0-9_-]"  # noqa: S105 - a class of characters
_TOKEN_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
#: Every known token has so many of these on end.
_LONG_RUN = b"a" * 20
_CONTROL = b"c"
_CONTROL_BYTES = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n")
_RUNS = bytes(
    ord("a") if byte in _TOKEN_BYTES else _CONTROL[0] if byte in _CONTROL_BYTES else ord(" ") for byte in range(256)
)
#: What a token has in it; the short ones of AWS have no digit now and then.
_DIGIT = re.compile(rb"[0-9]|A(?:[KS]I|BI|CC)A[A-Z]{16}")
#: What joins the parts of a token, and how many parts there may be before the longest.
_JOINTS, _PARTS = b"./~$|:+", 6
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_ESCAPED_LINE_ENDS = ("\\n", "\\r", "\\t")
#: How many characters follow where that is known.
_WHOLE = {
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_"), 36),
    "github_pat_": 82,
    "AIza": 35,
}
_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"


class _Shape(NamedTuple):
    """How one kind of token begins and goes on; `certain` where it goes on in one way only."""

    beginning: str
    follows: str
    kind: str
    certain: bool


class _Pattern(NamedTuple):
    """A shape without a beginning of its own; `anchors` are literals one of which is there. The group is the secret."""

    kind: str
    anchors: tuple[bytes, ...]
    pattern: str


#: What stands where a long run, or what is joined to it, begins.
_AT_A_RUN = (
    ("mailchimp-key", r"[0-9a-f]{32}-us[0-9]{1,2}"),
    ("mailgun-key", r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![A-Za-z0-9-])"),
    ("discord-token", rf"[MNO]{_TOKEN}{{23,25}}\.{_TOKEN}{{6,7}}\.{_TOKEN}{{27,}}+"),
    ("telegram-token", rf"(?:bot)?[0-9]{{8,10}}:AA{_TOKEN}{{32,}}+"),
    ("firebase-token", rf"{_TOKEN}{{11,22}}:APA91b{_TOKEN}{{80,}}+"),
    ("facebook-token", rf"[0-9]{{13,17}}\|{_TOKEN}{{27}}(?![A-Za-z0-9_-])"),
    ("wallet-key", r"[5KL][1-9A-HJ-NP-Za-km-z]{50,51}(?![A-Za-z0-9_-])"),
    ("azure-key", r"[A-Za-z0-9]{30,56}JQQJ99[A-Za-z0-9]{20,}"),
    ("azure-key", rf"{_TOKEN}{{30,46}}Az(?:Fu|Se|Ca|Sf)[A-Za-z0-9]{{5,7}}(?![A-Za-z0-9_-])"),
    ("ably-key", rf"{_TOKEN}{{6}}\.{_TOKEN}{{6}}:{_TOKEN}{{40,}}"),
    ("password-hash", r"md5[0-9a-f]{32}(?![A-Za-z0-9_-])"),
    ("k3s-token", r"K10[0-9a-f]{64}::[a-z]{2,10}:[0-9a-f]{32}"),
)
_RANDOM, _RANDOM_ALONE, _SUM = 20, 32, 40
#: Whoever's it is: a short word, and what is thrown together behind it,
_PREFIXED = (
    r"((?:[a-z][a-z0-9]{1,11}|[A-Z][A-Z0-9]{1,11}|[A-Z][a-z]{1,9})(?:[_.~-][A-Za-z0-9]{1,10}){0,3})[_.~-]"
    r"([A-Za-z0-9_-]{20,}+)(?![A-Za-z0-9_/(]|[.-]\w)"
)
#: which may be shorter, or a number, where the word says that it is secret,
_SAYS_SO = (
    r"(?i)(?:^|[_.~-])(?:sk|ak|rk|at|rt|\w*pat|api[_-]?key|\w*key|\w*secret|\w*token|tok|live|oauth|access|"
    r"refresh|priv|private|uat|bearer|webhook|signing|sec|svc\w*|hook)(?:[_.~-][a-z0-9]{1,6}){0,2}$"
)
#: and is none behind these: what is told apart, and what everybody may see.
_OPEN = (
    r"(?i)(?:^|[_.~-])(?:msgs?|message|resp|rs|fc|req|call|toolu|tool|srvtoolu|chatcmpl|cmpl|gen|run|cs|evt|"
    r"event|files?|"
    r"batch|ftjob|thread|asst|step|users?|org|team|proj|project|sess|session|conv|turn|item|cus|sub|pi|ch|in|price|"
    r"prod|acct|seti|pm|ep|app|node|chunk|vendor|main|index|static|sha\d*|md5|h1|id|uuid|page|cursor|next|trace|span|"
    r"etag|img|image|asset|cache|pk|pub|public|phc|publishable|agent|task|job|build|deploy|dpl|ver|doc|bundle|module|"
    r"css|src|snap|vol|vpc|i|ami|eni|subnet|sg|arn|key-id|client|oauth2|ga|gtm|ua|g|nix|store|layer|rev|commit|did|"
    r"tx|block|addr|ssh|data|base64|hash|integrity|nonce|v\d+|woff2?|font|pod|svc|window|view|cell)$"
)
#: An option of one letter before it, with the value behind it.
_OPTION = r"(?:^|\s)-[tkpasuTKPAS](?:[ =]|(?=[\"']))[\"']?$"
#: Beginnings that no word has: such a token is one also where it is pasted right behind something else.
_GLUED = "(?<=[A-Za-z0-9_-])"
_PATTERNS = (
    _Pattern(
        "github-token", (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"), rf"{_GLUED}(gh[pousr]_[A-Za-z0-9]{{36,}}+)"
    ),
    _Pattern("github-token", (b"github_pat_",), rf"{_GLUED}(github_pat_[A-Za-z0-9_]{{36,}}+)"),
    _Pattern("gitlab-token", (b"glpat-",), rf"{_GLUED}(glpat-{_TOKEN}{{20,}}+)"),
    _Pattern("anthropic-key", (b"sk-ant-",), rf"{_GLUED}(sk-ant-{_TOKEN}{{36,}}+)"),
    _Pattern("slack-token", (b"xoxb-", b"xoxp-"), rf"{_GLUED}(xox[bp]-[0-9]{{6,}}{_TOKEN}{{20,}}+)"),
    _Pattern("aws-access-key", (b"aws", b"AWS", b"Aws"), r"(?i:aws)[^\n]{0,60}?[\"']([A-Za-z0-9/+]{40})[\"']"),
    _Pattern(
        "slack-token",
        (b"hooks.slack.com",),
        rf"(?:https?://)?hooks\.slack\.com/(?:services|workflows|"
        rf"triggers)/(?:{_TOKEN}{{1,20}}/){{0,3}}{_TOKEN}{{16,}}+",
    ),
    _Pattern("npm-token", (b"_authToken=", b"_authtoken="), r":_auth[Tt]oken=([A-Za-z0-9+/=_-]{16,}+)"),
    _Pattern(  # beside the id of a key
        "secret-key",
        (b"AKIA", b"ASIA", b"DO00", b"LTAI", b"AKID", b"rzp_"),
        r"(?:A[KS]IA|DO00|LTAI|AKID|rzp_(?:live|test)_)[A-Za-z0-9]{12,32}(?:[^A-Za-z0-9\n][^\n]{0,200}?)?[\s\"',:]"
        r"((?:[A-Za-z0-9/+]{40}|[A-Za-z0-9/+]{43}|[A-Za-z0-9]{24}|[A-Za-z0-9/+]{100,}+)={0,2})(?![A-Za-z0-9/+])",
    ),
    _Pattern(
        "twilio-key",
        (b"lient(", b"wilio(", b"search(", b"Api(", b"API(", b"Auth(", b"Session("),
        r"(?i:client|twilio|search|api|auth|session)\(\s{0,8}\\{0,3}(?:[\"'][^\"'`\n]{1,80}\\{0,3}[\"']|"
        r"\w{1,40}),\s{0,8}\\{0,3}[\"']([0-9a-f]{32})\\{0,3}[\"']",
    ),
    _Pattern("terraform-token", (b".atlasv1.",), rf"{_START}([A-Za-z0-9]{{14}}\.atlasv1\.{_TOKEN}{{40,}}+)"),
    _Pattern("azure-secret", (b"Q~",), rf"{_START}([A-Za-z0-9_~.-]{{3}}[0-9]Q~[A-Za-z0-9_~.-]{{31,}}+)"),
    _Pattern("newrelic-key", (b"NRAL",), rf"{_START}([0-9a-zA-Z]{{30,36}}NRAL)(?![A-Za-z0-9])"),
    _Pattern("discord-webhook", (b"/api/webhooks/",), rf"/api/webhooks/[0-9]{{15,22}}/({_TOKEN}{{50,}}+)"),
    _Pattern(
        "teams-webhook",
        (b"webhook.office.com",),
        rf"office\.com/webhookb2/([0-9a-f@-]{{36,80}}/IncomingWebhook/[0-9a-zA-Z]{{32}}/{_TOKEN}{{30,}}+(?:/{_TOKEN}{{20,}}+)?)",
    ),
    _Pattern("wallet-key", (b" 0x", b"\t0x", b'"0x'), r"^\s{0,8}\(\d{1,2}\):?\s{1,4}(0x[0-9a-f]{64})(?![0-9a-f])"),
    _Pattern(
        "wallet-key",
        (b"rivate", b"RIVATE"),
        r"(?i:private[ _-]?keys?)[^\n]{0,40}?(0x[0-9a-fA-F]{64})(?![0-9a-fA-F])",
    ),
    _Pattern("wallet-key", (b"allet(", b"rivateKey("), r"(?:allet|rivateKey)\(\s{0,4}[\"'](0x[0-9a-fA-F]{64})[\"']"),
    _Pattern("twilio-key", (b"AC", b"SK"), r"(?:AC|SK)[0-9a-f]{32}[^\n]{0,80}?[^0-9A-Za-z]([0-9a-f]{32})(?![0-9a-f])"),
    _Pattern(
        "wallet-key", (b"_PK", b"_pk"), r"_(?i:pk)[\"']?\s{0,4}[=:]\s{0,4}[\"']?((?:0x)?[0-9a-fA-F]{64})(?![0-9a-fA-F])"
    ),
    _Pattern("webhook", (b"/private-",), r"/(private-[0-9a-f]{32})/"),
    _Pattern("wallet-key", (b"ccounts",), r"accounts[\"']?\s{0,4}[:=]\s{0,4}\[\s{0,8}[\"'](0x[0-9a-fA-F]{64})[\"']"),
    _Pattern("ceph-key", (b"==",), r"(?<![A-Za-z0-9+/=])(AQ[A-Za-z0-9+/]{36,38}==)"),
    _Pattern("password", (b"{AQAAA",), r"\{(AQAAA[A-Za-z0-9+/=]{30,}+)\}"),
    _Pattern(
        "webhook",
        (
            b"/hook/",
            b"/hooks/",
            b"/webhook",
            b"/integration/",
            b"/IncomingWebhook/",
            b"alchemy.com/",
            b"infura.io/",
            b"ankr.com/",
        ),
        rf"(?:/hooks?/|/webhooks?/|/integration/|/IncomingWebhook/|(?:alchemy\.com|infura\.io|ankr\.com)/(?:v\d|"
        rf"[a-z]{{3,12}})/)({_TOKEN}{{20,}}+)",
    ),
    _Pattern(
        "wallet-key",
        (b"rom_key(", b"ivate_key(", b"ivateKey(", b"KeyToAccount("),
        r"(?:[fF]rom_key|[pP]rivate_?[kK]ey|KeyToAccount)\(\s{0,4}[\"'](?:0x)?([0-9a-fA-F]{64})[\"']",
    ),
    _Pattern("password-hash", (b"*",), r"(?<![\w*])(\*[0-9A-F]{40})(?![0-9A-Fa-f])"),
    _Pattern(
        "password-hash", (b"SCRAM-SHA",), r"SCRAM-SHA-\d{1,3}\$(\d{3,7}:[A-Za-z0-9+/=]{16,}+\$[A-Za-z0-9+/=:]{40,}+)"
    ),
    _Pattern("password-hash", (b":::",), r":\d{3,6}:[0-9a-fA-F]{32}:([0-9a-fA-F]{32}):::"),
)
_RANDOM_KINDS = ("aws-access-key", "webhook")
_ANCHORS = [(anchor, rule) for rule in _PATTERNS for anchor in rule.anchors]


def runs_of(plain: bytes) -> bytes:
    """`plain` with an ``a`` for each character of tokens, a ``c`` for each control, and blanks."""
    return plain.translate(_RUNS)


def has_controls(runs: bytes) -> bool:
    """Whether there are controls in it."""
    return _CONTROL in runs


def tokens_in(text: str, plain: bytes, runs: bytes, starts: Sequence[int]) -> Iterator[Span]:
    """The tokens in `text`, which is `plain` with one byte a character; its long runs begin at `starts`."""
    end = 0
    for start in starts:
        if start >= end:  # what is inside a token is hidden with it, and need not be read again
            for span in _vendors_at(text, plain, runs, start):
                end = max(end, span.end)
                yield span
    lines = lines_at(plain, starts)
    candidates = b"\n".join([plain[start:end] for start, end in lines])
    for anchor, rule in _ANCHORS:
        if anchor in candidates:
            yield from _matches(rule, text, lines)


def long_runs(plain: bytes, runs: bytes) -> Iterator[int]:
    """Where runs of token characters begin that are long enough for a token and have a digit."""
    position = runs.find(_LONG_RUN)
    while position >= 0:
        end = runs.find(b" ", position + len(_LONG_RUN))
        end = len(runs) if end < 0 else end
        if _DIGIT.search(plain, position, end):
            yield position
        position = runs.find(_LONG_RUN, end)


# --- what vendors' tokens begin with ----------------------------------------------------------------------------------


@cache
def _shapes() -> dict[str, list[_Shape]]:
    """The shapes by their first two characters."""
    shapes: dict[str, list[_Shape]] = defaultdict(list)
    for vendor in VENDORS:
        exact = isinstance(vendor.follows, str)
        follows = vendor.follows if exact else f"[A-Za-z0-9_{re.escape(vendor.also)}-]{{{vendor.follows},}}+"
        for beginning in vendor.beginnings.split():
            shapes[beginning[:2]].append(_Shape(beginning, str(follows), vendor.kind, exact))
    return shapes


def is_begun(text: str, start: int, end: int) -> bool:
    """Whether between two positions is the beginning of a token, and not all of it."""
    shapes = [one for one in _shapes().get(text[start : start + 2], ()) if text.startswith(one.beginning, start)]
    return any(end - start >= max(len(one.beginning), 4) for one in shapes) and not any(
        end - start >= len(one.beginning) + _WHOLE.get(one.beginning, 0)
        and _compiled(one.follows).match(text, start + len(one.beginning), end)
        for one in shapes
    )


@cache
def _any_at_a_run() -> re.Pattern[str]:
    return re.compile("|".join(pattern for _, pattern in _AT_A_RUN))


def _vendors_at(text: str, plain: bytes, runs: bytes, start: int) -> Iterator[Span]:
    """The token whose longest run begins at `start`, if some vendor's begins so."""
    shapes = _shapes()
    for at in _beginnings(text, plain, runs, start):
        for shape in shapes.get(text[at : at + 2], ()):
            if not text.startswith(shape.beginning, at):
                continue
            match = _compiled(shape.follows).match(text, at + len(shape.beginning))
            if match and match.end() > start and "EXAMPLE" not in match[0] and _random(match[0], certain=shape.certain):
                yield Span(at, SHAPE, _token_end(text, match.end()), shape.kind)
        for kind, pattern in _AT_A_RUN if _any_at_a_run().match(text, at) else ():
            match = _compiled(pattern).match(text, at)
            if match and not monotone(match[0]) and (kind != "wallet-key" or is_wallet_key(match[0])):
                yield Span(at, SHAPE, _token_end(text, match.end()), kind)
        if _says_so(text, at) or _is_option(text, at):
            yield Span(at, NEAR, _token_end(text, at), "token")


def _says_so(text: str, start: int) -> bool:
    """Whether a word before what is made by chance says that it is secret, or nothing else is called so."""
    if start and text[start - 1 : start + 1] in _ESCAPED_LINE_ENDS:
        return False
    found = _compiled(_PREFIXED).match(text, start)
    if found is None:
        return False
    word, follows = found.groups()
    if word.startswith(("pk", "pub")):  # to be shown to everybody
        return False
    if _compiled(_SAYS_SO).search(word):
        return is_thrown_together(follows) or is_number(follows)
    return (
        len(follows) >= _RANDOM_ALONE
        and is_thrown_together(follows)
        and text[start - 1 : start] not in ("/", ".", "#", "-", "_")
        and not _compiled(_OPEN).search(word)
    )


def _is_option(text: str, start: int) -> bool:
    """Whether what begins there is the value of an option of one letter, and made by chance."""
    if _compiled(_OPTION).search(text, max(0, start - 6), start) is None:
        return False
    end = _token_end(text, start)
    value = text[start:end]
    return is_thrown_together(value) or (is_number(value) and len(value) != _SUM) if len(value) >= _RANDOM else False


def _beginnings(text: str, plain: bytes, runs: bytes, start: int) -> Iterator[int]:
    """Where a token may begin whose longest run begins at `start`."""
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
    """Whether this is a private key as Bitcoin's wallets write it: its last four bytes are a checksum."""
    number = 0
    for letter in text:
        number = number * 58 + _BASE58.index(letter)
    raw = number.to_bytes(40, "big").lstrip(b"\0")
    return hashlib.sha256(hashlib.sha256(raw[:-4]).digest()).digest()[:4] == raw[-4:]


def _random(follows: str, *, certain: bool) -> bool:
    """Whether this is no name that happens to begin like a token."""
    return not monotone(follows) and (certain or changes(follows[:200]) >= 2)


# --- shapes that need more than that ----------------------------------------------------------------------------------


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _matches(rule: _Pattern, text: str, lines: list[tuple[int, int]]) -> Iterator[Span]:
    for start, end in lines:
        for match in _compiled(rule.pattern).finditer(text, start, end):
            group = match.lastindex or 0
            if not monotone(match[group]) and (rule.kind not in _RANDOM_KINDS or changes(match[group]) >= 4):
                yield Span(match.start(group), SHAPE, match.end(group), rule.kind)


def _token_end(text: str, end: int) -> int:
    """Where the run of token characters around `end` is over: longer tokens than a pattern knows leave no tail."""
    while end < len(text) and _in_token(text[end]):
        end += 1
    return end


def _in_token(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "_-")
