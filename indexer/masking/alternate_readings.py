"""Other readings of a text, in which hidden secrets become visible, with the positions in the original text.

Invisible characters (zero-width characters, soft hyphens, terminal colors) and look-alikes (wide letters, no-break
spaces, escapes of JSON, HTML and URLs) can hide a secret. So can base64 and hexadecimal numbers, which are decoded.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from indexer.lazy_compilation import late

#: Invisible characters: controls except line ends and tabs, formats, and those that renderers leave out when unknown.
NEVER_SEEN = (
    "\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
INVISIBLE = re.compile(f"[{NEVER_SEEN}]")

#: Characters that a model may read as the brackets of a tag, in pairs; below, those that it may read as quotation
#: marks.
BRACKETS = "<>＜＞﹤﹥‹›〈〉〈〉⟨⟩❬❭❮❯❰❱《》⟪⟫«»≪≫˂˃ᐸᐳ⋖⋗⧼⧽︿﹀︽︾≺≻"  # noqa: RUF001
QUOTES = '"“”„‟‘’‚‛＂＇′″‴‵‶‷ʺʼ˝ˮ´❛❜❝❞❟❠⹂「」『』〝〞〟｢｣׳״'  # noqa: RUF001

_SPACES = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"
_WIDE = "\uff01-\uff5e"
_ESCAPE = r"\\++(?:u001[bB]|x1[bB]|033|e)"
#: A control sequence of a terminal, also if its first character is written as an escape, or is missing.
_SEQUENCE = (
    rf"(?:\x1b|{_ESCAPE})\[[0-9;:?]{{0,24}}[A-Za-z]|\[[0-9;]{{1,24}}m|"
    r"\x1b\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]"
)
_WIDE_NAMES = "\uff10-\uff19\uff21-\uff3a\uff3f\uff41-\uff5a"
#: Signs that a text may have to be read in another way. Rare characters come first, so that the search is fast.
_HIDES = late(
    f"[{NEVER_SEEN}{_SPACES}\uff1a\uff1d{_WIDE_NAMES}](?:"
    f"(?<=[!-~{_WIDE}][{NEVER_SEEN}{_SPACES}])[{NEVER_SEEN}{_SPACES}]{{0,63}}+[!-~{_WIDE}]|"
    f"(?<=\x1b)|(?<=[A-Za-z][\uff1a\uff1d])|(?<=[{_WIDE_NAMES}]))"
)
_ODD = late(f"[{NEVER_SEEN}{_SPACES}\uff1a\uff1d{_WIDE_NAMES}]")
_ORDINARY = bytes([9, 10, *range(32, 127)])
_ALTERED = late(f"{_SEQUENCE}|[{NEVER_SEEN}{_SPACES}{_WIDE}]")
_LIKE_SPACES = late(f"(?<=[!-~])[{_SPACES}]")
_ESCAPED = late(rf"{_SEQUENCE}|\\++(?:u([0-9a-fA-F]{{4}})|x([0-9a-fA-F]{{2}})|([01][0-7]{{2}})|(.))", re.DOTALL)
#: So many characters in a row that are written as escapes may hide a secret.
_SPELLED = late(
    rb"\\\\?(?:u00|x|[01])[0-9a-fA-F]{2}(?:\\\\?(?:u00|x|[01])[0-9a-fA-F]{2}){7}|%[2-7][0-9a-fA-F](?:%[2-7][0-9a-fA-F]){7}|"
    rb"&#x?[0-9a-fA-F]{2,3};(?:&#x?[0-9a-fA-F]{2,3};){7}"
)
_ENTITY = late(r"&(?:(quot|apos|amp|lt|gt)|#(\d{2,3})|#[xX]([0-9a-fA-F]{2}));")
#: Named entities of HTML, except "&" itself.
_ENTITIES = {"quot": '"', "apos": "'", "lt": "<", "gt": ">"}
#: The separator of two arguments of a program in a list.
_LISTED = late(r"\\{0,3}[\"']\s{0,4},\s{0,12}\\{0,3}[\"'](?=[^\s\"'])")
_PERCENT = late(r"%([2-7][0-9a-fA-F]|0[aAdD9])")
_HAS_ESCAPED = late(rb"\\(?:[\\ux/\"]|[01][0-7]{2})")
_HAS_LIST = late(rb"[\"'],\s{0,12}\\{0,3}[\"']-")
#: The separator of two strings that are added.
_SUM, _HAS_SUM = late(r"[\"'] ?[+.] ?[\"'](?=[\w.!-])"), late(rb"[\"'] ?[+.] ?[\"'][\w.!-]")
_HAS_ENTITY, _HAS_PERCENT = late(rb"&(?:quot;|#|amp;|lt;/)"), late(rb"%(?:3[DdAa]|22|0[aA]|[2-7][0-9a-fA-F]%)")
_LINE_ENDS = {"n": "\n", "r": "\r", "t": "\t"}

#: The end of a line that continues in the next one, and the continuation: after a sign such as a backslash, after a
#: string to which another is added, or at the edge of a page or terminal.
_GOES_ON = late(
    rb"(\\{1,4}\r?(?:\n|(?<=\\)n)|=\r?\n|\\?[\"'](?:[ \t]{0,4}[+.&\\]{1,2})?[ \t]{0,4}(?:\r?\n|(?=\\?[\"']))|"
    rb"%0[dD]%0[aA]|%0[aA]|[ \t]{0,3}[?|][ \t]{0,3}\r?\n|\r?\n)"
    rb"(?:[|?][ \t]{1,40}[|?][ \t]{0,3}|[ \t>|+#?-]{0,12}+)(?:\\?[\"'])?(?=([A-Za-z0-9+/=_.-]{4,}))"
)
#: The same, searched backwards from the continuation.
_LINE_END = late(
    rb"(\\{1,4}\r?(?:\n|(?<=\\)n)|=\r?\n|\\?[\"'](?:[ \t]{0,4}[+.&\\]{1,2})?[ \t]{0,4}\r?\n|"
    rb"[\"'][ \t]{0,4}[+.&][ \t]{0,4}(?=[\"'])|%0[dD]%0[aA]|%0[aA]|[ \t]{0,3}[?|][ \t]{0,3}\r?\n|\r?\n)"
    rb"(?:[|?][ \t]{1,40}[|?][ \t]{0,3}|[ \t>|+#?-]{0,12})(?:\\?[\"'])?((?:[A-Za-z0-9_-]{1,30}[.~])?)\Z"
)
_LINE_ENDS_AS = late(rb"\n|\\n|%0|[+.&][ \t]{0,4}[\"']\Z")
_LAST_WORD = late(rb"(?<![A-Za-z0-9_.-])[A-Za-z0-9][A-Za-z0-9_./-]{3,399}\Z")
_DIGIT, _JOINED_BEFORE = late(rb"[0-9]"), late(rb"(?:[A-Za-z0-9_-]+[.~])*\Z")
#: Characters that are no word and no name, as at the end of a token.
_THROWN = late(rb"(?=[^.\s]{8})(?:[A-Za-z_.-]*[0-9]+[A-Za-z]){2}[A-Za-z0-9+/=_.-]*+(?=[\r\n]|\Z)")
#: Maximum length of a part of a token. A file in base64 is longer, and would be read again from each of its signs.
_RUN = late(rb"[A-Za-z0-9+/_-]{1,4000}+")
_MAY_GO_ON = frozenset((b"\\", b"=", b'"', b"'", b"%", b"\r", b"\n", b" ", b"?", b"|"))
#: Beginnings of line ends that directly follow a truncated text.
_SIGNS_OF_A_REST = frozenset((b"\\", b"=", b" ", b"?", b"|"))
_QUOTES = frozenset((b'"', b"'"))
#: Minimum number of characters in the next line for the rest of a token with an unknown beginning.
_REST = 8
#: Minimum length of a wrapped line of a page, mail or terminal.
_FULL_LINE = 56


class View:
    """A text with some spans replaced, for example without invisible characters. `text` is the result.

    `edits` are (start, end, replacement) with positions in the original text.
    """

    def __init__(self, original: str, edits: Iterable[tuple[int, int, str]]) -> None:
        self._edits = list(edits)
        self._size = len(original)
        pieces: list[str] = []
        position = 0
        for start, end, instead in self._edits:
            pieces += (original[position:start], instead)
            position = end
        pieces.append(original[position:])
        self.text = "".join(pieces)

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original text from which the characters `start` to `end` of `text` come."""
        return self._place(start)[0], self._place(end - 1)[1]

    def _place(self, position: int) -> tuple[int, int]:
        starts, places = self._pieces
        number = bisect_right(starts, position) - 1
        start, end, same = places[number]
        if not same:
            return start, end
        start += position - starts[number]
        return start, start + 1

    @cached_property
    def _pieces(self) -> tuple[list[int], list[tuple[int, int, bool]]]:
        """Return where each piece of `text` starts, and its origin: (start, end, unchanged) in the original text."""
        starts: list[int] = []
        places: list[tuple[int, int, bool]] = []
        position = size = 0
        for start, end, instead in (*self._edits, (self._size, self._size, "")):
            for length, place in ((start - position, (position, start, True)), (len(instead), (start, end, False))):
                if length:
                    starts.append(size)
                    places.append(place)
                    size += length
            position = end
        return starts, places


def as_seen(text: str) -> list[View]:
    """Return readings of a text without its invisible characters and look-alikes, or [] if it has neither."""
    if not (_ODD.search(_rare(text)) and _HIDES.search(text)):
        return []
    ways = [_seen, lambda found: _seen(found).strip(" ")] if _LIKE_SPACES.search(text) else [_seen]
    return [_changed(text, _ALTERED, way) for way in ways]


def other_readings(text: str, plain: bytes, *, telling: bool, spelled: bool) -> Iterator[View]:
    """Yield further readings of `text` that may show a secret: without escapes, entities, or list separators.

    `plain` has one byte for each character. `telling` is True if the text has words that hint at secrets, and `spelled`
    if some characters are written as escapes.
    """
    if b"[0m" in plain and b"\x1b" not in plain:
        yield _changed(text, _ALTERED, _seen)
    if (b'"-' in plain or b"'-" in plain) and _HAS_LIST.search(plain):
        yield _changed(text, _LISTED, lambda found: " ")  # noqa: ARG005
    if telling and _HAS_SUM.search(plain):
        yield _changed(text, _SUM, lambda found: "")  # noqa: ARG005
    if telling or (spelled and _SPELLED.search(plain)):
        if _HAS_ESCAPED.search(plain):
            yield _changed(text, _ESCAPED, _unescaped)
        if _HAS_ENTITY.search(plain):
            yield _changed(text, _ENTITY, _entity)
        if _HAS_PERCENT.search(plain):
            yield _changed(text, _PERCENT, lambda found: chr(int(found[1], 16)))


def joined(
    text: str, plain: bytes, tokens: Iterable[int], begins: Callable[[str, int, int, bool], bool]
) -> View | None:
    """Return a reading in which tokens that line ends split are joined again; `None` if no token is split.

    `plain` has one byte for each character. `tokens` are the starts of long runs of token characters. `begins` returns
    True if a known kind of token begins between two positions; its last argument says if the rest seems to follow.
    """
    edits, position = list[tuple[int, int, str]](), 0

    def join(first: int, end: int, again: int) -> None:
        nonlocal position
        line = plain.rfind(b"\n", max(position, first - 400), end) + 1 or max(position, first - 400)
        if line > position:
            edits.append((position, line, "\n"))  # only these lines are read again
        edits.append((end, again, ""))
        position = again

    for token in tokens:
        if token > position and (cut := _begun(plain, token)) and cut[0] >= position:
            start, end, again, sure = cut
            if (sure and _DIGIT.search(plain, start, end)) or begins(text, start, end, _is_rest(plain, again)):
                join(start, end, again)
        while token >= position and (found := _going_on(plain, token)):
            line = plain.rfind(b"\n", max(position, token - 400), found.start(1)) + 1 or max(position, token - 400)
            before = _JOINED_BEFORE.search(plain, max(0, token - 60), token)
            if plain.startswith((b":", b"("), found.end(2)) or not (
                (
                    len(found[2]) >= _REST
                    and _DIGIT.search(found[2], 0, 60)
                    and (found[1].strip(b"\r\n") or _wrapped(plain, line, token, found))
                )
                or begins(
                    text,
                    before.start() if before else token,
                    found.start(1),
                    found[1][:1] in _SIGNS_OF_A_REST or _is_rest(plain, found.end()),
                )
            ):
                break
            join(token, found.start(1), found.end())
            token = position  # noqa: PLW2901
    if not edits:
        return None
    last = plain.find(b"\n", position)
    return View(text, [*edits, (last, len(text), "\n")] if last >= 0 else edits)


def _begun(plain: bytes, token: int) -> tuple[int, int, int, bool] | None:
    """Return the first part of a split token, which ends the line before `token`; `None` if that line ends otherwise.

    `token` is where the rest seems to begin. Return the first part's start and end, the start of the rest, and True if
    a sign for continued lines, such as a backslash, proves the split.
    """
    if plain[token - 1 : token] == b"%" and plain[token : token + 2] in (b"0A", b"0a"):
        token += 2
    token += plain[token - 1 : token + 1] == b"\\n"
    before = max(0, token - 60)
    found = _LINE_END.search(plain, before, token) if _LINE_ENDS_AS.search(plain, before, token) else None
    word = _LAST_WORD.search(plain, max(0, found.start() - 400), found.start()) if found else None
    return (word.start(), word.end(), found.start(2), found[1].strip(b"\r\n") != b"") if found and word else None


def _is_rest(plain: bytes, start: int) -> bool:
    """Return True if the rest of the line from `start` on is a random mix of characters, like the end of a token."""
    return _THROWN.match(plain, start) is not None


def _going_on(plain: bytes, token: int) -> re.Match[bytes] | None:
    """Match the line end behind the token at `token`, and the token's rest in the next line."""
    run = _RUN.match(plain, token)
    end = run.end() if run else token
    return _GOES_ON.match(plain, end) if plain[end : end + 1] in _MAY_GO_ON else None


def _wrapped(plain: bytes, line: int, token: int, found: re.Match[bytes]) -> bool:
    """Return True if the line that starts at `line`, or a string in it, may be wrapped at the line end `found`."""
    if found.start(1) - line < _FULL_LINE:
        return (
            plain[token - 1 : token] in _QUOTES and plain[found.end(2) : found.end(2) + 1] == plain[token - 1 : token]
        )
    return not plain.startswith((b"=", b":", b"("), found.end(2))


def _rare(text: str) -> str:
    """Return the characters of `text` that are not printable ASCII. Searching all characters would take much longer."""
    return text.encode("utf-8", "surrogatepass").translate(None, _ORDINARY).decode("utf-8", "surrogatepass")


def _changed(text: str, what: re.Pattern[str], instead: Callable[[re.Match[str]], str]) -> View:
    return View(text, ((found.start(), found.end(), instead(found)) for found in what.finditer(text)))


def _seen(found: re.Match[str]) -> str:
    if "\uff01" <= found[0] <= "\uff5e":
        return chr(ord(found[0]) - 0xFEE0)
    return " " if found[0].isspace() and not INVISIBLE.match(found[0]) else ""


def _unescaped(found: re.Match[str]) -> str:
    wide, narrow, octal, character = found.groups()
    if code := wide or narrow or octal:
        character = chr(int(code, 8 if octal else 16))
        return "" if INVISIBLE.match(character) else character
    return _LINE_ENDS.get(character, character) if character else ""


def _entity(found: re.Match[str]) -> str:
    name, decimal, hexadecimal = found.groups()
    code = int(decimal) if decimal else int(hexadecimal, 16) if hexadecimal else 0
    return _ENTITIES.get(name, "&") if name else chr(code) if 32 <= code < 127 else found[0]


_BASE64 = late(rb"[A-Za-z0-9+/_-]{20,}+={0,2}")
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-")
_READABLE = frozenset((9, 10, 13, *range(32, 127)))
#: The beginning of readable text in base64: the first of four letters shows what the first of three characters is.
_SEEMS_TEXT = late(rb"(?:[CDI-Za-f][A-Za-z0-9+/_-]{3}){4}")
#: Number of characters at the beginning that decide whether base64 is readable text.
_TELLING = 20

#: Readable text as hexadecimal numbers.
_HEX_TEXT = late(rb"(?:[2-7][0-9a-fA-F]|0[aAdD9]){16,}")


def texts_in(plain: bytes, starts: Iterable[int]) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of `plain` with readable text in base64 or hexadecimal numbers, each with the decoded text."""
    for begin, end in long_words(plain, starts):
        if _HEX_TEXT.fullmatch(plain, begin, end):
            yield begin, end, bytes.fromhex(plain[begin:end].decode()).decode("ascii", "replace")
        elif (
            _SEEMS_TEXT.match(plain, begin)
            and _readable(plain[begin : begin + _TELLING])
            and (said := _decoded(plain[begin:end])) is not None
        ):
            yield begin, end, said.decode("ascii", "replace")


def long_words(plain: bytes, starts: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the spans of words of at least 20 characters of base64. `starts` are positions in such words."""
    done = 0
    for start in starts:
        if start < done:
            continue
        begin = start
        while begin > done and plain[begin - 1] in _LETTERS:
            begin -= 1
        if match := _BASE64.match(plain, begin):
            done = match.end()
            yield begin, done


def _readable(beginning: bytes) -> bool:
    said = _decoded(beginning)
    return said is not None and _READABLE.issuperset(said)


def _decoded(written: bytes) -> bytes | None:
    written = written.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    try:
        return base64.b64decode(written[: len(written) - (len(written) % 4 == 1)] + b"=" * (-len(written) % 4))
    except binascii.Error:
        return None
