"""Private keys as files hold them: blocks between two lines, with real or escaped line ends."""

from __future__ import annotations

from collections.abc import Iterator

from indexer.masking.spans import HIDDEN, SHAPE, Span
from indexer.patterns import late

_EDGE = r"(?:[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1|[A-Z ]{0,20}NKEY SEED) ?-----?"
_BODY_LIMIT, _TAIL_LIMIT = 32_768, 4_096
_BEGIN = late(rf"-----? ?BEGIN {_EDGE}")
_WHOLE = late(rf"((?>(?:[^-{HIDDEN}]++|-(?!--- ?-?)|-(?=-----END))*))-----? ?END {_EDGE}")
#: What stands between the lines of a key: what a quotation, a difference, or a numbered listing begins them with.
_BETWEEN = r"(?>(?:\\[nrt]|[\s\"'+>|-]|\d{1,6}(?:[→:|\t]|\\t)){1,24})"
#: What follows a header whose end is missing: lines of base64 and nothing else, the last one perhaps cut.
_CUT = late(rf"(?>(?:(?>{_BETWEEN}?)[A-Za-z0-9+/=]{{32,}}+)+)(?:{_BETWEEN}[A-Za-z0-9+/=]{{1,31}}+\Z)?")
#: What stands before an end whose header is missing, read from behind.
_END = late(rf"-----? ?END {_EDGE}")
_BODY = late(rf"(?>(?:[A-Za-z0-9+/=]{{16,}}+{_BETWEEN})+)(?:[A-Za-z0-9+/=]{{1,15}}{_BETWEEN})?$")
_BASE64_RUN = late(r"[A-Za-z0-9+/]{16}")
_PUTTY = late(r"Private-Lines: \d{1,4}\s{1,4}((?>(?:[A-Za-z0-9+/=]{16,}+\s{0,4})+)(?:Private-MAC: [0-9a-f]{40,}+)?)")


def private_keys(text: str, plain: bytes) -> Iterator[Span]:
    """Whole blocks, and those of which a part is cut off. A bare header is no secret."""
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
