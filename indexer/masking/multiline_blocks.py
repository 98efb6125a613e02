"""Secrets that are recognized by the block around them: a Kubernetes Secret, a table, recovery codes, cookies, SQL.

Also secrets alone on their line below a line such as "Your token:".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from indexer.lazy_compilation import late
from indexer.masking.alternate_readings import View
from indexer.masking.rules import HIDDEN, PHRASE, Span, expanded, is_monotone, lines_at
from indexer.masking.value_checks import (
    is_alone,
    is_hard,
    is_mixed,
    is_strong,
    is_thrown_together,
    is_told,
    is_uuid,
    looks_random,
    placeholder,
)

#: Words for the blocks in this module. A text without any of them has no such block.
BLOCK_WORDS = tuple(
    b"kind insert value codes backup recovery digos recoverycodes backupcodes wiederherstellungscodes".split()
)
_TELL_OF_CODES = frozenset(BLOCK_WORDS[3:])
#: What may be before and behind the heading of a column that has secrets.
_BEFORE_HEADING, _BEHIND_HEADING = (
    late(rb"(?:^|[,;|\t\n]|  )[\"'*` ]{0,3}[a-z_ ]{0,12}\Z"),
    late(rb"[a-z]{0,8}[\"'*` ]{0,2}(?=[,;|\t\r\n]|  |\Z)"),
)
_HEADINGS = (b"pass", b"pwd", b"secret", b"token", b"key")
#: What begins each line of a numbered listing, a diff or a quotation.
_PREFIX = late(r"(?m:^)(?:[ \t]{0,8}\d{1,6}(?:\u2192|\t|: ?|\|)|[+>-] ?(?=\S)|[\w./-]{1,80}:\d{1,6}:)")
#: How much text around the word "Secret" belongs to one document.
_AROUND = 20_000
_IS_SECRET = late(r"kind\\{0,3}[\"']?:\s{0,4}\\{0,3}[\"']?Secret\b")
_DATA = late(r"(?m:^)([ \t]{0,40})(?:string)?[dD]ata:[ \t]*\n((?:\1[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)+)")
_ENTRY = late(
    r"(?m:^)([ \t]+)[\w.-]{1,100}:[ \t]+"
    r"(?:[|>][+-]?\d?[ \t]*\n((?:\1[ \t]+[^\n]*(?:\n|\Z))+)|[\"']?([^\s\"'#][^\n\"']{3,})[\"']?)"
)
_JSON_DATA = late(r"\"(?:stringD|d)ata\"\s{0,8}:\s{0,8}\{([^{}]{1,20000})\}")
_JSON_ENTRY = late(r":\s{0,8}\"([^\"\n]{4,})\"")
_NAMED = late(expanded("{heading}"))
_LONG_WORD = late(r"[A-Za-z0-9+/_-]{30,}={0,2}")
_HEADING = late(rb"pass|pwd|secret|token|key|contrase|kennwort|senha|mot de|wachtwoord")
_RULE = late(r"[|+]?[ \t]{0,8}:?-{2,}[-:|+ \t]*")
#: A cell of a table whose cells are separated by blanks only.
_CELL = late(r"\S+(?: \S+)*")
_CODES_BEGIN = late(expanded("{codes_begin}"))
_CODES_BEGIN_WITH = late("recovery|backup|wiederherstellung|scratch|codes? de|digos? de|codici di")
_BEHIND = late(r"[\"']?\s?[:=]\s?\[?[\"']?|[ ](?:(?:is|was|ist|est|es)[ ])?(?=\d{8}\b|[0-9a-z]{4,8}-[0-9a-z]{4,8}\b)")
_CODE = late(r"(?<![\w./:#-])(?:[A-Za-z0-9]{4,10}(?:-[A-Za-z0-9]{4,10}){0,7}|\d{6,10}|\d{4} \d{4})(?![\w/(:]|\.\w|-)")
_VALUE_OF = late(expanded(r"alue(?<=[vV]alue)(?<![\w-][vV]alue){before_value}([^\"'\s\\]{8,4096})\\{0,3}[\"']"))
_HAS_VALUE = late(expanded("value{before_value}").encode())
#: Other fields of a JSON object that show that its value is a secret.
_TELLS_BESIDE = late(
    r"\"keyName\\{0,3}\"|/secrets/|\"httpOnly\\{0,3}\"|SecureString|\"(?:sensitive|secret|"
    r"secure)\\{0,3}\"\s{0,4}:\s{0,4}true|"
    r"\"type\\{0,3}\"\s{0,4}:\s{0,4}\\{0,3}\"(?:secret|password)"
)
#: Names of cookies and headers for authentication, in the JSON object of their values.
_SESSION = late(
    r"(?i)(?<![a-z])(?:name|key)\\{0,3}[\"']?\s{0,4}:\s{0,4}\\{0,3}[\"'][\w.-]{0,40}(?:sess|sid\b|auth|jwt|remember|ticket)"
)
_NEIGHBORS = (
    b"keyname",
    b"/secrets/",
    b"httponly",
    b"securestring",
    b'"sensitive',
    b'"secure',
    b'"secret',
    b'"password"',
    b"sess",
    b"auth",
    b"sid",
    b"jwt",
    b"remember",
    b"ticket",
)
_COOKIE = late(
    r"(?m:^)(?:#HttpOnly_)?\S{1,200}\t(?:TRUE|FALSE)\t\S{1,200}\t(?:TRUE|"
    r"FALSE)\t\d{1,12}\t[^\t\n]{1,200}\t([^\t\n]{8,4096})"
)
_INSERT = late(
    r"(?i)insert\s+into\s+[\w.\"`\[\]]{1,80}\s*\(([^()]{1,600})\)\s*values\s*((?:\([^()\n]{1,2000}\)[\s,]{0,20})+)"
)
_ROW = late(r"\(([^()\n]{1,2000})\)")
_FIELD = late(r"[ \t]*(?:[eEnN]?'((?:[^']|''){0,500})'|([^,]*))[ \t]*(?:,|\Z)")


def blocks_in(
    text: str, lower: bytes, signs: Collection[bytes], places: Mapping[bytes, list[int]], *, tabs: bool
) -> Iterator[Span]:
    """Yield the secrets in blocks of several lines, even if each line begins with a line number or a mark of a diff.

    `lower` is the text as lower-case bytes. `signs` are its words that hint at secrets, and `places` their positions.
    `tabs` is True if long tokens may follow tabs.
    """
    finders = list(_finders(lower, signs, places))
    if tabs:
        finders.append(_cookies)
    if finders and _PREFIX.search(text):
        view = View(text, ((found.start(), found.end(), "") for found in _PREFIX.finditer(text)))
        for span in (span for found_in in finders for span in found_in(view.text)):
            start, end = view.original(span.start, span.end)
            yield Span(start, span.source, end, span.kind)
    yield from (span for found_in in finders for span in found_in(text))


def _finders(
    lower: bytes, signs: Collection[bytes], places: Mapping[bytes, list[int]]
) -> Iterator[Callable[[str], Iterator[Span]]]:
    if b"secret" in signs and b"kind" in signs:
        yield _kubernetes
    if any(_heads(lower, place, place + len(sign)) for sign in _HEADINGS for place in places.get(sign, ())):
        yield _tables
    if b"insert" in signs and b"values" in lower:
        yield _rows
    if b"value" in signs and _HAS_VALUE.search(lower) and any(sign in lower for sign in _NEIGHBORS):
        yield _neighbors
    if not _TELL_OF_CODES.isdisjoint(signs):
        yield _codes


def _heads(lower: bytes, start: int, end: int) -> bool:
    """Return True if the word at this position, which hints at a secret, is the heading of a table's column."""
    return (
        _BEHIND_HEADING.match(lower, end) is not None
        and _BEFORE_HEADING.search(lower, max(0, start - 18), start) is not None
    )


def _span(match: re.Match[str], group: int, kind: str) -> Span:
    return Span(match.start(group), PHRASE, match.end(group), kind)


def _kubernetes(text: str) -> Iterator[Span]:
    done = 0
    for place in (found.start() for found in _IS_SECRET.finditer(text)):
        if place < done:
            continue
        start = max(done, place - _AROUND, text.rfind("\n---", max(done, place - _AROUND), place))
        done = text.find("\n---", place, place + _AROUND)
        done = done if done >= 0 else min(len(text), place + _AROUND)
        for block in _DATA.finditer(text, start, done):
            for entry in _ENTRY.finditer(text, block.start(2), block.end(2)):
                group = 2 if entry[2] else 3
                if not placeholder(entry[group].strip()):
                    yield _span(entry, group, "secret")
        for block in _JSON_DATA.finditer(text, start, done):
            for entry in _JSON_ENTRY.finditer(text, block.start(1), block.end(1)):
                if not placeholder(entry[1]):
                    yield _span(entry, 1, "secret")


def _tables(text: str) -> Iterator[Span]:
    """Yield the cells of tables below a heading that names a secret: in Markdown, or with commas, tabs or blanks."""
    separator, columns, position = "", list[_Column](), 0
    lower = text.encode("ascii", "replace").lower()  # in which searching is much faster than with large letters
    while position < len(text):
        if not columns:  # all lines before the next heading say nothing
            if (found := _HEADING.search(lower, position)) is None:
                return
            position = max(position, lower.rfind(b"\n", position, found.start()) + 1)
        end = text.find("\n", position) + 1 or len(text)
        line = text[position:end]
        if separator and separator in line.strip() and not _RULE.fullmatch(line.strip()):
            yield from _cells(line, position, separator, columns)
        elif not _RULE.fullmatch(line.strip()) or not columns:
            separator, columns = "", []
        if not columns and not any(c in line for c in "(){}=:") and _HEADING.search(lower, position, end):
            separator = _mark(line)
            parted = _parted(line, separator)
            columns = [column for column in parted if _is_heading(column.text)] if len(parted) > 1 else []
        position = end


def _is_heading(cell: str) -> bool:
    return _NAMED.fullmatch(cell.strip(" \t\r\n\"'*`")) is not None


class _Column(NamedTuple):
    """A cell in a line of a table. `number` is its column, and `end` the start of the next cell."""

    number: int
    text: str
    start: int
    end: int


def _mark(line: str) -> str:
    """Return the separator of the cells in a table's line."""
    return next((mark for mark in ("|", ";", "\t", "  ") if mark in line.strip()), ",")


def _parted(line: str, separator: str) -> list[_Column]:
    if separator == "  ":
        found = list(_CELL.finditer(line))
        ends = [*(cell.start() for cell in found[1:]), len(line)]
        return [
            _Column(number, cell[0], cell.start(), end)
            for number, (cell, end) in enumerate(zip(found, ends, strict=True))
        ]
    cells, start = list[_Column](), 0
    for number, cell in enumerate(line.split(separator)):
        cells.append(_Column(number, cell, start, start + len(cell)))
        start += len(cell) + 1
    return cells


def _cells(line: str, position: int, separator: str, columns: list[_Column]) -> Iterator[Span]:
    cells = _parted(line, separator)
    for column in columns:
        if separator == "  ":
            there = [cell for cell in cells if cell.start < column.end and cell.start + len(cell.text) > column.start]
        else:
            there = cells[column.number : column.number + 1]
        for cell in there[:1]:
            value = cell.text.strip(" \t\r\n\"'*`")
            if len(value) >= 6 and is_strong(value) and not placeholder(value) and not {" ", "("} & {*value}:
                start = position + line.index(value, cell.start)
                yield Span(start, PHRASE, start + len(value), "password")
    for word in _LONG_WORD.finditer(line):  # cells that do not stand below their headings
        if is_thrown_together(word[0]):
            yield Span(position + word.start(), PHRASE, position + word.end(), "secret")


def _codes(text: str) -> Iterator[Span]:
    """Yield recovery codes (for a lost second factor): several alike codes behind words that announce them."""
    done = 0
    for sign in _CODES_BEGIN_WITH.finditer(text.lower()):
        if sign.start() >= done and (begin := _CODES_BEGIN.match(text, sign.start())):
            codes = _alike(text, begin.end()) or _one(text, begin.end())
            done = codes[-1].end() if codes else done
            yield from (_span(code, 0, "recovery-code") for code in codes)


def _alike(text: str, end: int) -> list[re.Match[str]]:
    """Return the recovery codes behind the position `end`, or [] if there are fewer than two of about one length."""
    near = list[re.Match[str]]()
    for code in _CODE.finditer(text, end, end + 1500):
        if code.start() - end > (24 if near else 80):
            break
        near.append(code)
        end = code.end()
    digits = [number for number, code in enumerate(near) if is_code(code[0])]
    alike = [number for number in digits if abs(len(near[number][0]) - len(near[digits[0]][0])) < 2]
    if len(alike) < 2:
        return []
    first = near[alike[0]][0]
    return [
        code
        for number, code in enumerate(near[max(0, alike[0] - 1) : alike[-1] + 2], max(0, alike[0] - 1))
        if number in alike or (_shape(code[0]) == _shape(first) and code[0].islower())
    ]


def _one(text: str, end: int) -> list[re.Match[str]]:
    """Return [code] for a single recovery code behind a colon, or a word such as "is", at `end`; else []."""
    behind = _BEHIND.match(text, end)
    code = _CODE.match(text, behind.end()) if behind else None
    return [code] if code and is_code(code[0]) else []


def _shape(code: str) -> list[int]:
    return [len(part) for part in code.split("-")]


def is_code(value: str) -> bool:
    """Return True if the value has a digit, and does not merely repeat one or two characters."""
    return any(c.isdigit() for c in value) and not is_monotone(value)


def _neighbors(text: str) -> Iterator[Span]:
    """Yield the values in JSON objects that are secret because of other fields, such as ``"sensitive": true``."""
    for value in _VALUE_OF.finditer(text):
        before = text[max(0, value.start() - 402) : value.start()].rpartition("{")[2]
        beside = before + value[0] + text[value.end() : value.end() + 400].partition("}")[0]
        random = looks_random(value[1], lenient=True)
        if (random and not is_uuid(value[1]) and _SESSION.search(beside)) or (
            (random or is_strong(value[1])) and _TELLS_BESIDE.search(beside)
        ):
            yield _span(value, 1, "secret")


def _cookies(text: str) -> Iterator[Span]:
    """Yield the values of cookies in a cookie file (the format of Netscape, which curl uses)."""
    for cookie in _COOKIE.finditer(text):
        if looks_random(cookie[1].rstrip(), lenient=True):
            yield _span(cookie, 1, "cookie")


def _rows(text: str) -> Iterator[Span]:
    """Yield the values in SQL inserts that belong to columns with the name of a secret, such as "password"."""
    for insert in _INSERT.finditer(text):
        columns = [number for number, cell in enumerate(insert[1].split(",")) if _is_heading(cell)]
        for row in _ROW.finditer(text, insert.start(2), insert.end(2)) if columns else ():
            fields = list(_FIELD.finditer(text, row.start(1), row.end(1)))
            for number in columns:
                if (
                    number < len(fields)
                    and fields[number][1]
                    and (is_told(fields[number][1]) or is_mixed(fields[number][1]))
                ):
                    yield _span(fields[number], 1, "password")


#: Parts of words, in lower case, that announce a secret in the next line,
_ANSWER_STEMS = (b"pass", b"auth", b"pw", b"secret", b"token", b"key", b"login")
#: and texts that do so, by a whole word in them.
_BY_WORD = {
    b"op": b"op read",
    b"vault": b"vault kv get",
    b"bw": b"bw get",
    b"wg": b"wg gen",
    b"openssl": b"openssl rand",
    b"raw": b"output -raw",
    b"config": b"config:get",
    b"urandom": b"urandom",
    b"generic": b"find-generic",
    b"internet": b"find-internet",
    b"credentials": b"credential",
}
ANSWER_WORDS, ANSWER_LITERALS = tuple(_BY_WORD), (*_ANSWER_STEMS, *_BY_WORD.values())
#: Maximum length of a line that announces a secret.
_LONGEST = 500
_ALONE = late(
    r"[ \t]*\r?\n(?:\r?\n|\s{0,8}(?:```|~~~)\w{0,12}[ \t]*\n)?[ \t]{0,12}(?:1(?:\u2192|\t|: )|- )?"
    rf"(\\{{0,3}}[\"'`]?)([^\s\"'`<>{HIDDEN}]{{6,400}}+)\1[ \t]*(?=\r?\n|\Z)"
)
#: A name and a password, each on its line, and nothing else, as in files that programs read for authentication.
_TWO_LINES = late(r"\r?\n[\w.@+-]{2,64}\r?\n([^\s]{6,64})[ \t]*(?=\r?\n(?:[$#%>]|\s*\n|```)|\s*\Z)")
_AUTH_FILE = late(
    r"(?i)(?:\b(?:cat|type|less|more|head|bat)\b[^\n|]*|^[\s#;]{0,8}(?:file:? )?[\w./~-]{0,80}/[\w.-]{0,40})"
    r"(?:auth|pass|cred|login|secret)[\w.-]*:?$"
)
#: Commands that print a secret and nothing else.
_GETS = late(expanded("{gets}"))
#: Commands that print a variable or file, if its name is that of a secret.
_PRINTS = late(expanded("{prints}"))
#: Words for a secret that are a heading above it, with or without a colon.
_IS_CALLED = late(expanded("{is_called}"))
#: Words about a secret, after which no secret follows.
_ABOUT = late(expanded("{about_answers}"))


def asks_for_one(line: str) -> bool:
    """Return True if the last line of `line` asks for a secret, or announces one on the next line."""
    last = line.rstrip().rpartition("\n")[2]
    if len(last) > _LONGEST:
        return False
    return bool(_GETS.search(last) or (not _ABOUT.search(last) and (_PRINTS.search(last) or _IS_CALLED.search(last))))


def answers_in(text: str, lower: bytes, signs: Collection[bytes], places: Mapping[bytes, list[int]]) -> Iterator[Span]:
    """Yield the secrets that are alone on their line below an announcement (a line such as "Your token:").

    `lower` is the text as lower-case bytes. `signs` are its words that hint at secrets, and `places` their positions.
    """
    there = [*_ANSWER_STEMS, *(said for word, said in _BY_WORD.items() if word in signs)]
    for start, end in lines_at(lower, sorted(place for literal in there for place in places.get(literal, ()))):
        found = _ALONE.match(text, end) if end - start < _LONGEST else None
        if (
            end - start < _LONGEST
            and (two := _TWO_LINES.match(text, end))
            and _AUTH_FILE.search(text, start, end)
            and is_hard(two[1])
        ):
            yield Span(two.start(1), PHRASE, two.end(1), "password")
        if found is None or placeholder(found[2]) or is_monotone(found[2]) or not is_alone(found[2]):
            continue
        if asks_for_one(text[start:end].strip()):
            yield Span(found.start(2), PHRASE, found.end(2), "secret")
