"""Secrets out of what is exported, indexed or shown: `redact` puts ``[REDACTED:<kind>]`` in their place.

Where the shape of a token is known (a GitHub token, an AWS key id …) the patterns are those of detect-secrets, joined
by a few that it lacks. Passwords and other free-form values are known by what they are assigned to and how they look.

Patterns are tried only on lines that hold a long run of token characters with a digit, or a literal that the pattern
needs; ordinary text costs a few substring searches. All repetition is bounded or possessive: the time grows with the
text's length, whatever the text.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

#: Raised whenever the output changes for the same input: exports and index entries made before are then made again.
VERSION = 1

_MARK = "[REDACTED:"
_MASK = re.compile(r"\[REDACTED:[a-z0-9-]{1,40}\]")
#: The start of a word, or just after an escaped line end in quoted text.
_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
_SEPARATORS = " \t\r\n=:\"'"
_ESCAPED_LINE_ENDS = ("\\n", "\\r", "\\t")
#: Every known token has this many characters of letters, digits, ``_`` and ``-`` on end.
_LONG_RUN = b"a" * 20
_TOKEN_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_RUNS = bytes(ord("a") if byte in _TOKEN_BYTES else ord(" ") for byte in range(256))
_DIGIT = re.compile(rb"[0-9]")


@dataclass(frozen=True, slots=True)
class _Rule:
    """A secret that is known by its shape: `patterns` (the group, where there is one, is the secret) or a `plugin` of
    detect-secrets. `anchors` are literals of which a line must hold one; `needs` must be in every match.
    """

    kind: str
    anchors: tuple[bytes, ...]
    patterns: tuple[re.Pattern[str], ...] = ()
    plugin: str = ""
    needs: str = ""


_SHAPE, _NAME = 0, 1


class _Span(NamedTuple):
    """Where a secret is. `source` puts one that is known by its shape before one that is only assigned there."""

    start: int
    source: int
    end: int
    kind: str


def _own(kind: str, anchors: str, *patterns: str) -> _Rule:
    return _Rule(kind, tuple(anchors.encode().split()), tuple(re.compile(pattern) for pattern in patterns))


def _library(kind: str, anchors: str, plugin: str, needs: str = "") -> _Rule:
    return _Rule(kind, tuple(anchors.encode().split()), plugin=plugin, needs=needs)


_WORD = "[A-Za-z0-9_-]"
_TOKEN_RULES = (
    # detect-secrets' plugins whose patterns are linear. Its JWT, OpenAI, npm, Cloudant, IBM and SoftLayer patterns
    # backtrack over long runs, those for Artifactory, Azure and URLs take in what stands around the secret, and that
    # for private keys finds only the header: those have forms of their own here.
    _library("aws-access-key", "AKIA ASIA A3T ABIA ACCA aws AWS Aws", "aws.AWSKeyDetector"),
    _library("discord-token", "iscord DISCORD Bot", "discord.DiscordBotTokenDetector"),
    _library("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", "github_token.GitHubTokenDetector"),
    _library("gitlab-token", "glpat- gldt- glft- glsoat- glrt- GR1348941 glcbt-", "gitlab_token.GitLabTokenDetector"),
    _library("gitlab-token", "glimt- glptt- glagent- gloas-", "gitlab_token.GitLabTokenDetector"),
    _library("mailchimp-key", "-us", "mailchimp.MailchimpDetector"),
    _library("pypi-token", "pypi-Ag", "pypi_token.PypiTokenDetector"),
    _library("sendgrid-key", "SG.", "sendgrid.SendGridDetector"),
    _library("slack-token", "xox hooks.slack.com", "slack.SlackDetector"),
    _library("square-secret", "sq0csp-", "square_oauth.SquareOAuthDetector"),
    _library("stripe-key", "k_live_", "stripe.StripeDetector"),
    _library("telegram-token", ":AA", "telegram_token.TelegramBotTokenDetector", needs=":AA"),
    _library("twilio-key", "AC SK", "twilio.TwilioKeyDetector"),
    _own("artifactory-token", "AKC", rf"{_START}AKC(?=[A-Za-z]{{0,64}}[0-9])[A-Za-z0-9]{{20,}}+"),
    _own("anthropic-key", "sk-ant-", rf"{_START}sk-ant-{_WORD}{{16,}}+"),
    _own(
        "api-key",
        "sk-",
        rf"{_START}sk-(?!ant-)(?=[A-Za-z_-]{{0,64}}[0-9])(?=[a-z0-9_-]{{0,64}}[A-Z]|or-v1-){_WORD}{{20,}}+",
    ),
    _own("github-token", "github_pat_", rf"{_START}github_pat_[A-Za-z0-9_]{{36,}}+"),
    _own("google-key", "AIza ya29.", rf"{_START}(?:AIza{_WORD}{{35}}|ya29\.{_WORD}{{20,}}+)"),
    _own("google-key", "GOCSPX-", rf"{_START}GOCSPX-{_WORD}{{20,}}+"),
    _own("huggingface-token", "hf_", rf"{_START}hf_[A-Za-z0-9]{{30,}}+"),
    _own("npm-token", "npm_ _authToken=", rf"{_START}npm_[A-Za-z0-9]{{36}}", r":_authToken=([A-Za-z0-9+/=_-]{16,}+)"),
    _own("slack-token", "xapp- xoxe", rf"{_START}(?:xapp-|xoxe[.-]){_WORD}{{20,}}+"),
    _own("stripe-key", "k_test_ whsec_", rf"{_START}(?:[rs]k_test_|whsec_)[A-Za-z0-9]{{24,}}+"),
    _own("vault-token", "hvs.", rf"{_START}hvs\.{_WORD}{{24,}}+"),
    _own("age-key", "AGE-SECRET-KEY-1", rf"{_START}AGE-SECRET-KEY-1[0-9A-Z]{{40,}}+"),
    _own(
        "api-key",
        "xai- gsk_ dop_v1_ shpat_ lin_api_ pplx-",
        rf"{_START}(?:xai-|gsk_|dop_v1_|shpat_|lin_api_|pplx-)(?=[A-Za-z]{{0,64}}[0-9])[A-Za-z0-9]{{30,}}+",
    ),
    _own("jwt", "eyJ", rf"{_START}eyJ{_WORD}{{8,}}+\.{_WORD}{{8,}}+(?:\.{_WORD}*+)*+"),
)
#: Secrets without such a run: their anchors are looked for in the whole text.
_LINE_RULES = (
    _own(
        "authorization",
        "uthorization UTHORIZATION",
        r"(?i:authorization)\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?(?i:basic|bearer|token|digest|apikey)\s{1,4}([A-Za-z0-9._~+/=-]{8,}+)",
    ),
    _own("authorization", "earer EARER", r"(?i:bearer)\s{1,4}(?=[A-Za-z._~+/-]{0,64}[0-9])([A-Za-z0-9._~+/=-]{20,}+)"),
    _own("password-in-url", "://", r"://[^\s/:@\"'`<>\[\]{}\\\0]{0,128}:([^\s/\"'`<>\[\]{}\\\0]{1,256})@"),
    _own("password", "curl", r"curl\s[^\n\0]{0,200}?(?:-u|--user)[ =]?[\"']?[^\s:\"'\0]{1,64}:([^\s\"'\0:]{3,256}+)"),
)

#: Which literal calls for which rule.
_TOKEN_ANCHORS = [(anchor, rule) for rule in _TOKEN_RULES for anchor in rule.anchors]
_LINE_ANCHORS = [(anchor, rule) for rule in _LINE_RULES for anchor in rule.anchors]

_PEM_EDGE = r"[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_PEM_BODY_LIMIT = 32_768
_PEM_BEGIN = re.compile(rf"-----BEGIN {_PEM_EDGE}")
_PEM_WHOLE = re.compile(rf"((?:[^-\0]++|-(?!----))*+)-----END {_PEM_EDGE}")
#: What follows a header whose end is missing: lines of base64 and nothing else.
_PEM_CUT = re.compile(r"(?:(?:\\[nr]|[\s\"'+]){0,8}+[A-Za-z0-9+/=]{32,}+)++")
_BASE64_RUN = re.compile(r"[A-Za-z0-9+/]{16}")
_PUTTY = re.compile(r"Private-Lines: \d{1,4}\s{1,4}((?:[A-Za-z0-9+/=]{16,}+\s{0,4})++)")


def redact(text: str) -> str:
    """`text` with every secret in it replaced by ``[REDACTED:<kind>]``; ids, hashes, code and placeholders stay.

    Doing it again changes nothing.
    """
    # A second round sees what only a mask beside it made into a secret of its own. It ends: each round hides more.
    while spans := sorted(_spans(_visible(text))):
        text = _masked(text, spans)
    return text


def _visible(text: str) -> str:
    """`text` without its masks, of this or an earlier run: they are neither secrets nor names of secrets."""
    return _MASK.sub(lambda mask: "\0" * len(mask[0]), text) if _MARK in text else text


def _masked(text: str, spans: list[_Span]) -> str:
    """`text` with the sorted `spans` replaced; where two overlap, the first names the kind."""
    pieces: list[str] = []
    position = 0
    for span in spans:
        if span.start >= position:
            pieces += [text[position : span.start], f"{_MARK}{span.kind}]"]
        position = max(position, span.end)  # a longer match over the same secret: its tail goes as well
    pieces.append(text[position:])
    return "".join(pieces)


def _spans(text: str) -> list[_Span]:
    # One byte a character whatever the text: substring searches are fast, and positions are the text's own.
    plain = text.encode("ascii", "replace")
    spans: list[_Span] = []
    if b"PRIVATE KEY" in plain or b"Private-Lines:" in plain:
        spans += _private_keys(text)
    if _LONG_RUN in (runs := plain.translate(_RUNS)) and (lines := _lines(plain, _run_starts(plain, runs))):
        candidates = b"\n".join([plain[start:end] for start, end in lines])
        for anchor, rule in _TOKEN_ANCHORS:
            if anchor in candidates:
                spans += _matches(rule, text, lines)
    for anchor, rule in _LINE_ANCHORS:
        if anchor in plain:
            spans += _matches(rule, text, _lines(plain, _positions(plain, anchor)))
    lower = plain.lower()
    for stem, kind in _STEMS.items():
        if stem in lower:
            spans += _assignments(text, lower, stem, kind)
    return spans


def _positions(plain: bytes, needle: bytes) -> Iterator[int]:
    position = plain.find(needle)
    while position >= 0:
        yield position
        position = plain.find(needle, position + len(needle))


def _run_starts(plain: bytes, runs: bytes) -> Iterator[int]:
    """Where `runs` of token characters begin that are long enough for a token and have a digit."""
    position = runs.find(_LONG_RUN)
    while position >= 0:
        end = runs.find(b" ", position + len(_LONG_RUN))
        end = len(runs) if end < 0 else end
        if _DIGIT.search(plain, position, end):
            yield position
        position = runs.find(_LONG_RUN, end)


def _lines(plain: bytes, positions: Iterable[int]) -> list[tuple[int, int]]:
    """The lines at ascending `positions`, each once, with the line end before them."""
    lines: list[tuple[int, int]] = []
    end = -1
    for position in positions:
        if position > end:
            start = max(0, plain.rfind(b"\n", 0, position))
            end = plain.find(b"\n", position)
            end = len(plain) if end < 0 else end
            lines.append((start, end))
    return lines


# --- secrets that are known by their shape --------------------------------------------------------------------------


@cache
def _plugin_patterns(plugin: str) -> tuple[re.Pattern[str], ...]:
    """The patterns of a detect-secrets plugin. Imported at the first need: it takes a tenth of a second."""
    module, name = plugin.split(".")
    return tuple(getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name).denylist)


def _matches(rule: _Rule, text: str, lines: list[tuple[int, int]]) -> Iterator[_Span]:
    for pattern in rule.patterns or _plugin_patterns(rule.plugin):
        for start, end in lines:
            for match in pattern.finditer(text, start, end):
                span = _library_span(rule, text, match) if rule.plugin else _own_span(rule, text, match)
                if span:
                    yield span


def _library_span(rule: _Rule, text: str, match: re.Match[str]) -> _Span | None:
    # The library looks for lines to report, not for the secret's exact place: some of its matches take in the
    # separators around it, some end before the token does, and a group may be only the token's prefix.
    group = match.lastindex if match.lastindex and len(match[match.lastindex]) >= 16 else 0
    start, end = match.span(group)
    start += len(match[group]) - len(match[group].lstrip(_SEPARATORS))
    end -= len(match[group]) - len(match[group].rstrip(_SEPARATORS))
    if not _word_starts(text, start):
        return None
    found = text[start : _token_end(text, end)]
    return None if rule.needs not in found or _monotone(found) else _Span(start, _SHAPE, start + len(found), rule.kind)


def _own_span(rule: _Rule, text: str, match: re.Match[str]) -> _Span | None:
    group = 1 if match.re.groups else 0
    if _monotone(match[group]) or (group and _placeholder(match[group])):
        return None
    end = match.end(1) if group else _token_end(text, match.end())
    return _Span(match.start(group), _SHAPE, end, rule.kind)


def _private_keys(text: str) -> Iterator[_Span]:
    """Whole PEM blocks, also with escaped line ends, and those whose end is cut off. A bare header is no secret."""
    for begin in _PEM_BEGIN.finditer(text):
        whole = _PEM_WHOLE.match(text, begin.end(), begin.end() + _PEM_BODY_LIMIT)
        if whole and _BASE64_RUN.search(whole[1]):
            yield _Span(begin.start(), _SHAPE, whole.end(), "private-key")
        elif not whole and (cut := _PEM_CUT.match(text, begin.end())):
            yield _Span(begin.start(), _SHAPE, cut.end(), "private-key")
    for match in _PUTTY.finditer(text):
        yield _Span(match.start(1), _SHAPE, match.end(1), "private-key")


def _token_end(text: str, end: int) -> int:
    """Where the run of token characters around `end` is over: longer tokens than a pattern knows leave no tail."""
    while end < len(text) and _in_token(text[end]):
        end += 1
    return end


def _in_token(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "_-")


def _word_starts(text: str, start: int) -> bool:
    return start == 0 or not _in_token(text[start - 1]) or text[max(0, start - 2) : start] in _ESCAPED_LINE_ENDS


def _monotone(value: str) -> bool:
    """Whether the end of `value` is one or two characters over and over, as in ``ghp_xxxxxxxx``."""
    return len(value) >= 8 and len(set(value[-12:])) <= 2


# --- values that are known by their name ----------------------------------------------------------------------------

#: Parts of names, in lower case, and what their values are.
_STEMS = {
    b"passw": "password",
    b"passphrase": "password",
    b"pwd": "password",
    b"_pass": "password",
    b"secret": "secret",
    b"token": "token",
    b"key": "api-key",
}
#: A name that ends in "key" is that of a secret only after one of these.
_KEY_OWNERS = tuple(b"api access secret private priv auth account client service signing encryption master db".split())
#: Names that only speak about a secret.
_ABOUT = re.compile(
    r"(?i)(?:sha\d{0,3}|hash|digest|checksum|fingerprint|id|name|path|file|ur[li]|type|count|limit|field|label|hint|"
    r"placeholder|length|size|policy|expiry|s)$"
)
_NAME_HEAD = re.compile(r"[A-Za-z0-9_.-]{0,40}$")
_ASSIGNED = re.compile(
    r"(?P<suffix>[A-Za-z0-9_-]{0,32}+)(?:\\?[\"']\]?)?"
    r"(?P<sep>[ \t]{0,4}(?::[ \t]{0,4}[A-Za-z_][\w.\[\]|]{0,40}+[ \t]{0,4}=(?!=)|:=|=>|={1,3}|!={1,2}|:)[ \t]{0,4}|[ ])"
    r"(?P<quote>\\?[\"'`])?(?P<value>[^\s\"'`\\<>\0]{6,4096}+)"
)
_CODE_ENDS = re.compile(r"[,;|(){}\[\]]")
_NEXT_PARAMETER = re.compile(r"&[A-Za-z0-9_.-]{1,64}=")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"[0-9a-fA-F]+")
_UPPER_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
#: References and places: a variable, a path, an address, an object that is asked for the value.
_REFERENCE = re.compile(
    r"(?i)[$%@~/&*\[({]|\./|[a-z][a-z0-9+]{1,12}://|(?:process|os|sys|self|this|config|settings|env|secrets?|args|options)\.|vault:|arn:|enc\["
)
_STANDS_FOR = re.compile(
    r"(?i)redacted|placeholder|change.?me|example|your|dummy|xxx|\*\*\*|\.\.\.|…|\$\{|\{\{|%\(|todo|replace|undefined|"
    r"/.*\.[a-z]{2,5}$|"
    r"^(?:pass|passw(?:or)?d|secret|token|string|none|null|true|false|hidden|masked|optional|required)$"
)
_CHANGES = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")
_SPECIAL = frozenset("!#$%^&*+=?~@")


@dataclass(frozen=True, slots=True)
class _Value:
    """What is assigned to a telling name, and how: ``literal`` (environment, URL, option: the very characters),
    ``quoted`` (a string, or a line of settings), or ``code`` (more often a variable than a value).
    """

    text: str
    kind: str
    form: str


def _assignments(text: str, lower: bytes, stem: bytes, kind: str) -> Iterator[_Span]:
    """The secrets that are assigned to names with `stem` in them."""
    position = lower.find(stem)
    while position >= 0:
        end = position + len(stem)
        if stem != b"key" or lower[max(0, position - 12) : position].rstrip(b"_-").endswith(_KEY_OWNERS):
            match = _ASSIGNED.match(text, end)
            if match:
                yield from _assigned(text, position, match, kind)
                # Names inside a very long value are not looked at: each would read the same characters again.
                end = match.end("value") if match.end("value") - match.start("value") > 256 else end
        position = lower.find(stem, end)


def _assigned(text: str, stem: int, match: re.Match[str], kind: str) -> Iterator[_Span]:
    """The span of the assigned value, if it is a secret."""
    head = _NAME_HEAD.search(text, max(0, stem - 40), stem)
    name_start = head.start() if head else stem
    name = text[name_start : match.end("suffix")]
    if _ABOUT.search(match["suffix"]) or (match["sep"] == " " and not name.startswith("--")):
        return
    value = _value(text, name, name_start, match, kind)
    if value and _is_secret(value):
        start = match.start("value")
        yield _Span(start, _NAME, start + len(value.text), kind)


def _value(text: str, name: str, name_start: int, match: re.Match[str], kind: str) -> _Value | None:
    value, separator = match["value"], match["sep"]
    before = text[name_start - 1 : name_start] if name_start else ""
    after = text[match.end() : match.end() + 1]
    if match["quote"]:
        # A string with blanks in it is a sentence about the secret.
        closed = not after or after in "\"'`\\"
        return _Value(value, kind, "quoted") if closed else None
    value = _NEXT_PARAMETER.split(value, maxsplit=1)[0]
    environment = separator == "=" and _UPPER_NAME.fullmatch(name) is not None
    if environment or (separator == "=" and before in ("?", "&")) or name.startswith("--"):
        return _Value(value.rstrip(";,)"), kind, "literal")
    indent = text[max(0, name_start - 40) : name_start].rpartition("\n")[2]
    settings = separator.strip() == ":" and (before in ("'", '"') or not indent.strip(" \t-"))
    if settings and after in ("", "\n", "\r", '"', "'", "\\"):
        return None if _CODE_ENDS.search(value) else _Value(value, kind, "quoted")
    cut = _CODE_ENDS.search(value)
    if cut and cut[0] in "([{":
        return None
    return _Value(value[: cut.start()] if cut else value, kind, "code")


def _is_secret(value: _Value) -> bool:
    text = value.text
    if len(text) < 6 or _placeholder(text) or _REFERENCE.match(text) or _UUID.fullmatch(text):
        return False
    if text.isdigit():
        return value.kind == "password" and value.form != "code"
    if _HEX.fullmatch(text):
        return len(text) >= 16 and (value.form == "literal" or (value.form == "quoted" and value.kind != "token"))
    if value.form == "code":
        return len(text) >= 16 and _looks_random(text)
    if value.kind == "password":
        return value.form == "literal" or any(c.isdigit() or c in _SPECIAL for c in text)
    if value.form == "literal":
        return len(text) >= 16 or (len(text) >= 8 and any(c.isdigit() for c in text))
    return len(text) >= 12 and _looks_random(text)


def _placeholder(value: str) -> bool:
    return _STANDS_FOR.search(value[:256]) is not None or value[:1] in "<$" or len(set(value)) <= 2


def _looks_random(value: str) -> bool:
    """Letters and digits thrown together, which words with numbers and dates between separators are not."""
    changes = len(_CHANGES.findall(value))
    mixed = value.isalnum() and not value.islower() and not value.isupper()
    return changes >= 4 or (len(value) >= 20 and mixed and changes >= 1)
