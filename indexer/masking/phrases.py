"""Secrets that are recognized by the words around them.

A phrase is a pattern of words with a secret between them, from ``phrases.rules`` (output of programs), ``prose.rules``
(sentences) or ``commands.rules`` (options of commands). A *strange* word cannot be a word or name: near a word that
hints at a secret, it counts as a secret.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache

from indexer.lazy_compilation import dataclass, late
from indexer.masking.alternate_readings import long_words
from indexer.masking.rules import (
    HIDDEN,
    NEAR,
    PHRASE,
    SHAPE,
    VENDORS,
    Rule,
    Span,
    begun,
    compiled,
    ended,
    expanded,
    is_monotone,
    lines_at,
    literals,
    rules_in,
)
from indexer.masking.value_checks import (
    ENGLISH,
    PASSWORD_WORDS,
    STEM_WORDS,
    Noun,
    is_base64_pair,
    is_chosen,
    is_coined,
    is_dense,
    is_hard,
    is_identity,
    is_long,
    is_made_up,
    is_mixed,
    is_number,
    is_opaque,
    is_strange,
    is_strong,
    is_tangled,
    is_thrown,
    is_thrown_together,
    is_told,
    is_unlike_words,
    is_uuid,
    is_worded,
    looks_random,
    placeholder,
    speaks_abroad,
)

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
    """A pattern of words with a secret as its last group. All literals are in lower case.

    The pattern is tried on lines with one of `anchors`, in texts that have one of `words` as a whole word or, if there
    are no `words`, one of `signs`. `least` names the check in `value_checks` that the secret must pass. The pattern may
    span several lines (`whole`), extend `reach` characters beyond a line, or start with an anchor (`begins`).
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
    """Read the phrases of the rule file `name`."""
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
        kind, tuple(map(str.encode, anchors)),
        tuple(map(str.encode, literals(rule, "if") if "if" in rule else anchors)),
        tuple(map(str.encode, words.replace("␣", " ").split())), pattern, rule.get("check", "any"),
        whole="whole" in options, reach=int(rule.get("reach", 0)), begins="begins" in options,
    )  # fmt: skip


def found_in(phrase: Phrase, text: str, lower: bytes, places: Iterable[int]) -> Iterator[Span]:
    """Yield the secrets that `phrase` finds in `text`. `lower` is the text as lower-case bytes of equal positions.

    `places` are the positions of the phrase's anchors.
    """
    if phrase.begins:
        matches = (compiled(phrase.pattern).match(text, place) for place in places)
        yield from (span for match in matches if match for span in _secret(phrase, match))
    else:
        lines = [(0, len(text))] if phrase.whole else lines_at(lower, sorted(places))
        yield from found_at(phrase, text, _stretched(lines, phrase.reach) if phrase.reach else lines)


def _stretched(lines: list[tuple[int, int]], reach: int) -> list[tuple[int, int]]:
    """Move the end of each (start, end) by `reach`, and join lines that then touch."""
    stretches = lines[:1]
    for start, end in lines[1:]:
        first, last = stretches[-1]
        if start <= last + reach:
            stretches[-1] = (first, end)
        else:
            stretches.append((start, end))
    return [(start, end + reach) for start, end in stretches]


def found_at(phrase: Phrase, text: str, lines: list[tuple[int, int]]) -> Iterator[Span]:
    """Yield the secrets that `phrase` finds in the `lines` of `text`, which are (start, end) positions."""
    for start, end in lines:
        for match in compiled(phrase.pattern).finditer(text, start, end):
            yield from _secret(phrase, match)


def _secret(phrase: Phrase, match: re.Match[str]) -> Iterator[Span]:
    group = match.lastindex
    if not group or HIDDEN in (value := match[group]) or is_monotone(value) or placeholder(value):
        return
    if _CHECKS[phrase.least](value):
        yield Span(match.start(group), PHRASE, match.end(group), phrase.kind)


_CHARACTER = "[A-Za-z0-9_-]"
#: A line end, or two joined strings, with everything that quotes, boxes, diffs and indents put around it.
_BREAK = (
    r"(?:(?:\\{0,2}|=|[\"'][ \t]{0,4}[+.&\\]?[ \t]{0,4}|[ \t]{1,3}[│┃┆║|][ \t]{0,3})\r?\n[ \t>+|#│┃┆║▌▏▎-]{0,12}[\"']?|"
    r"\\{1,2}n|[\"'][ \t]{0,2}[+.&]?[ \t]{0,2}[\"']|%0[aA])"
)
#: Of a token longer than the first number, one half is long enough to be found by itself.
_LONG, _LEAST_BEGINNING, _LEAST = 40, 3, 20
#: A password hash as in files of users and programs.
_CRYPT = late(
    r"\$((?:[1-9]|y|gy|apr1|argon2(?:id|i|d)|scrypt|pbkdf2(?:-sha\d{1,3})?|sha1|2[abxy]|krb5\w{2,8}|DCC2)\$"
    r"(?:[A-Za-z0-9./+=,_#*@-]{1,64}\$){0,4}[A-Za-z0-9./+=_$-]{20,}+)"
)


def _wrapped() -> Iterator[Phrase]:
    """Yield a phrase for each kind of token so short that no half of it is found by itself if a line end splits it."""
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
#: Phrases with letters beyond ASCII, for which the bytes of a text cannot be searched; below, the other ones by their
#: signs.
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
    """Yield the secrets of all phrases in `text`. `lower` is the text as lower-case bytes of equal positions.

    `signs` are the words in it that hint at secrets, and `places` the positions of anchors (see `Phrase`).
    """
    for phrase in dict.fromkeys(phrase for sign in signs for phrase in _BY_SIGN.get(sign, ())):
        if not places.keys().isdisjoint(phrase.anchors):
            there = [place for anchor in phrase.anchors for place in places.get(anchor, ())]
            yield from found_in(phrase, text, lower, there)


def phrases_abroad(text: str, plain: bytes) -> Iterator[Span]:
    """Yield passwords behind phrases with letters beyond ASCII, as in Russian or Chinese sentences."""
    for phrase in _ABROAD if speaks_abroad(text) else ():
        for word in (anchor.decode() for anchor in phrase.anchors):
            if word in text:
                yield from found_at(phrase, text, lines_at(plain, (match.start() for match in re.finditer(word, text))))


def hashes_in(text: str, lower: bytes) -> Iterator[Span]:
    """Yield password hashes, as Unix stores them ("$6$…")."""
    for match in _CRYPT.finditer(text) if b"$" in lower else ():
        if not is_monotone(match[1]):
            yield Span(match.start(1), SHAPE, match.end(1), "password-hash")


#: Short options of commands that a password may follow.
_OPTION = late(rb" -(?:[a-z]{0,3}u|[pawnk]|hp|-pass|-user|-auth|-proxy-user|pass|storep|keyp|destst|srcst)")
#: Characters in names of programs; all other bytes become blanks.
_NAMES = bytes(
    byte if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "_.-") else 32 for byte in range(256)
)


def commands_in(text: str, lower: bytes) -> Iterator[Span]:
    """Yield passwords in command lines, behind options such as "-p"."""
    if options := [found.start() for found in _OPTION.finditer(lower)]:
        lines = lines_at(lower, options)
        said = b"\n".join([lower[start:end] for start, end in lines])
        if not _words_in(said).isdisjoint(_by_program()):
            for phrase in dict.fromkeys(_by_program()[found[1]] for found in _programs().finditer(said)):
                yield from found_at(phrase, text, lines)


def _words_in(said: bytes) -> set[bytes]:
    """Return the words of `said` that may be names of programs. This is much faster than a search for all names."""
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


#: The beginnings of words that hint at a secret.
NEAR_WORDS = tuple(b"shared login log pat wifi wi wlan ssid connect sequelize share".split())
_STEMS = "|".join(word.decode() for word in STEM_WORDS)
_SIGNS = frozenset((b"pass", b"pw", b"secret", b"token", b"key", b"auth", *NEAR_WORDS, *STEM_WORDS))
_KEY_OWNERS = (
    "api|global|license|admin|access|secret|private|auth|signing|encryption|account|isakmp|decryption|validation|master"
)
_TELLS = late(
    r"(?i)(?:(?P<password>pass(?:w(?:or)?d(?:s|nya|u|em)?|worts?|phrases?|code|(?<=mot de pass)e|(?<=palavra-pass)e)|"
    rf"(?<![a-z0-9+/])pw|(?<![a-z])(?:{'|'.join(word.decode() for word in PASSWORD_WORDS)})[a-z]{{0,3}})|"
    r"pass|(?:(?<![a-z0-9+/])|(?<=root)|(?<=bind))pwd?|"
    r"secrets?|tokens?|(?<![a-z0-9])(?:auth|pat|log ?in|wi-?fi|wlan|ssid|connect(?=\()|sequelize(?=\()|"
    r"share(?:d-key)?)|"
    rf"(?<![a-z])(?:{_STEMS})|"
    rf"(?:{'|'.join(f'(?<={owner})|(?<={owner}[ _-])' for owner in _KEY_OWNERS.split('|'))})keys?)"
    r"(?![A-Za-z0-9+/]|\.[a-z]{1,4}\b)"
)
#: How many characters behind such a word are searched, in how many pieces, each of at most how many characters.
_REACH, _PIECES, _LONGEST = 80, 8, 128
_NO_LINE = late(r"\n|\. |; ")
_TOLD_BEFORE = late(
    r"(?i)(?:(?<![a-z])(?:use|using|with|to|is|was|as|mit|avec|con|com|usa|nutze|nimm|utilise)[ ]|=)[\"'`]?"
    rf"([^\s\"'`,;<>()\[\]{{}}=|{HIDDEN}]{{8,128}}+)[\"'`]?(?=[\s,)])"
)
_LETTER = (
    rf"[^\s\"'`,;<>()\[\]{{}}=|"
    rf"\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7ff\uff00-\uffef\u201c-\u201f\u2018-\u201b{HIDDEN}]"
)
_PIECE = late(rf"{_LETTER}{{8,{_LONGEST}}}+")
#: The rest of a word longer than that.
_REST = late(rf"{_LETTER}{{1,{_LONGEST}}}+")
#: What directly precedes a value and says that it is the secret; and how far behind the word for a secret it may be.
_SAID = late(
    r"(?i)(?:[:=\u2192\uff1a]|->|=>|[ ](?:is|was|are|to|ist|lautet|est|es|\u00e9|\u00e8|er|\u00e4r|je|on|je|to))"
    r"[ \t\"'`*(]{0,6}\Z"
)
_NEAR = 60
#: What people write around a password that they mention; below, a prompt for a password with everything before its
#: reply.
_NO_WORD, _SAID_BEFORE, _SAID_BEHIND = (late(expanded(f"{{{it}}}")) for it in ("no_word", "said_before", "said_behind"))
_TOWARDS, _CHANGED, _MACHINE = (late(expanded(f"{{{it}}}")) for it in ("towards", "changed", "machine"))
_ASKED, _NOTHING, _OVER = (late(expanded(f"{{{it}}}")) for it in ("asked", "nothing_between", "over"))
_PLACE = late(r"(?i)[ ](?:dans|in|im|em|nel\w{0,2}|sur|su|w|v|ve|\u0432|bei|aus|from)[ ]\Z")
_BARE_TOKEN = late(r"(?i)(?:^|[^\w]|[^a-z][ _-])tokens?\Z")
_ONLY_SAID = late(r"(?:[ _]?[iI][dD])?[\"'`]?[ \t]{0,24}(?:[:=]|is|->|=>|\u2192)?[ \t]{0,4}[\"'`]?")
_LINES_ABOVE, _ONLY_KEY = 3, late(r"^[^\n ]{40,}$")
#: Words that name a key without being the key, such as "key id".
_ID_OF_KEY = late(r"(?i)keys?[ _-]?id")
_COMMENT, _HEAD = late(r"[\"'`);, ]{0,6}[ ](?:#|//|--)"), late(r"[:({\[=]$")
_LONGEST_KEY, _SUM = 600, 40  # a sum of git is no key
#: What says in a line that a key is in it; below, what says that something else is.
_KEEPS = late(expanded("{keeps}") + rf"|(?<![a-z])(?:{_STEMS})(?![a-z])")
_KEEPS_NUMBER = late(expanded("{keeps_number}"))
_INTRODUCES, _COLOUR = late(r"[:=?({\[]"), late(r"\d{1,3}m")
_OTHER = late(expanded("{other_things}"))
#: Characters after and before a word that make it a call, a name or an address.
_BEHIND, _BEFORE = frozenset("(=["), frozenset("$@/\\&")
#: Words about a secret in a line that has none.
_ABOUT = late(expanded("{about_no_secret}"))


def strange_in(text: str, lower: bytes, signs: Collection[bytes], places: Mapping[bytes, list[int]]) -> Iterator[Span]:
    """Yield strange words (unlike words and names) near words that hint at a secret.

    `lower` is the text as lower-case bytes. `signs` are its words that hint at secrets, and `places` their positions.
    """
    for sign in _SIGNS.intersection(signs):
        done = 0
        for place in places.get(sign, ()):
            if place >= done and (found := _TELLS.match(text, place)) and not _ID_OF_KEY.match(text, place):
                told = (sign in STEM_WORDS and sign not in ENGLISH) or found[0].endswith(("nya", "passe"))
                password = found["password"] is not None and (told or _NO_WORD.match(text, found.end()) is not None)
                for span in _behind(text, lower, found.end(), told=told, password=password):
                    done = span.end
                    yield span
                yield from _told_before(text, place)


def _told_before(text: str, position: int) -> Iterator[Span]:
    """Yield a strange word (unlike words and names) before the "password" at `position`, if the sentence links both."""
    for piece in _TOLD_BEFORE.finditer(_NO_LINE.split(text[max(0, position - 90) : position])[-1]):
        start = position - len(piece.string) + piece.start(1)
        value = piece[1].rstrip(".:")
        if is_strange(value) and not placeholder(value) and not _ABOUT.search(_line(text, position)):
            yield Span(start, NEAR, start + len(value), "secret")


def strange_behind(text: str, lower: bytes, noun: Noun) -> Iterator[Span]:
    """Yield strange words (unlike words and names) behind `noun`, a word such as "пароль" that means a secret."""
    return _behind(text, lower, noun.end, told=True, password=noun.kind == "password")


def _behind(text: str, lower: bytes, position: int, *, told: bool, password: bool) -> Iterator[Span]:
    """Yield the secrets behind a word such as "password", which ends at `position`, and replies to password prompts."""
    yield from _pieces(text, lower, position, told=told, password=password)
    if password and (asked := _ASKED.match(text, position)):
        yield from _pieces(text, lower, asked.end(), told=False, password=True)


def _pieces(text: str, lower: bytes, position: int, *, told: bool, password: bool) -> Iterator[Span]:
    """Yield strange words (unlike words and names) behind `position` in its line, and words called a password."""
    stop = position + _REACH
    line = lower.find(b"\n", position, stop + _LONGEST)
    for number, piece in enumerate(_PIECE.finditer(text, position, line if line >= 0 else stop + _LONGEST)):
        if piece.start() > stop or number >= _PIECES:
            return
        value = piece[0].rstrip(".:")
        if (
            text[piece.end() : piece.end() + 1] not in _BEHIND
            and text[piece.start() - 1] not in _BEFORE
            and (
                is_strange(last := value.rpartition(":")[2])
                or (told and is_made_up(value) and not _PLACE.search(text, position, piece.start()))
                or _is_told(text, position, piece.start(), last)
                or (
                    password
                    and is_told(value)
                    and _is_said(text, position, piece.start(), piece.start() + len(value), told=told)
                )
            )
            and "//" not in value
            and not placeholder(value)
            and not is_monotone(value)
            and not _ABOUT.search(_line(text, position))
        ):
            rest = _REST.match(text, piece.end()) if len(piece[0]) == _LONGEST else None
            whole = piece[0] + rest[0] if rest else piece[0]
            yield Span(piece.start(), NEAR, piece.start() + len(whole.rstrip(".:")), "secret")


def _is_told(text: str, position: int, start: int, value: str) -> bool:
    """Return True if the text introduces a UUID or random `value` as the secret that is mentioned before `position`."""
    if is_uuid(value):
        before = text[max(0, position - 24) : position]
        return _ONLY_SAID.fullmatch(text, position, start) is not None and not _BARE_TOKEN.search(before)
    return is_thrown(value) and start - position < _NEAR and _SAID.search(text, position, start) is not None


def _is_said(text: str, position: int, start: int, end: int, *, told: bool) -> bool:
    """Return True if the words around the value at `start` say that it is the password mentioned at `position`."""
    if _MACHINE.search(text, start, end):
        return False
    if _SAID_BEFORE.search(text, position, start) or _SAID_BEHIND.match(text, end):
        return True
    if _NOTHING.fullmatch(text, position, start):
        asked = not text[position - 1].isalnum() and _OVER.match(text, end) is not None
        return told or asked or text[start - 1] + text[end : end + 1] == "()"
    return bool(_TOWARDS.search(text, position, start) and _CHANGED.search(_line(text, position)))


def keys_in(text: str, plain: bytes, starts: Sequence[int]) -> Iterator[Span]:
    """Yield long random words in or below a line that mentions a secret. `starts` are inside long words."""
    for begin, end in long_words(plain, starts):
        value = text[begin:end].rstrip("=")
        number = all(map(is_number, value.split("-")))
        if text[begin - 1 : begin] == "[" and _COLOUR.match(value):  # the other reading has it
            continue
        if len(value) > _LONGEST_KEY or not (number or is_thrown_together(value)):
            continue
        if not is_monotone(value) and not placeholder(value) and _in_company(text, begin, end, number=number):
            yield Span(begin, NEAR, end, "secret")


def _in_company(text: str, begin: int, end: int, *, number: bool) -> bool:
    """Return True if the line with a random word, or a line above, says that the word is a key."""
    first = begun(text, begin, 200)
    before, behind = text[first:begin], text[end : ended(text, end, 100)]
    if (
        before[-1:] in ("/", ".", "#")
        or behind[:1] in ("/", "(")
        or _OTHER.match(text, begin)
        or _OTHER.search(before)
        or _OTHER.search(behind)
    ):
        return False
    keeps = _KEEPS_NUMBER if number else _KEEPS
    if (keeps.search(before) and end - begin != _SUM) or (
        _KEEPS.search(behind) and (not number or _COMMENT.match(behind))
    ):
        return True
    if _is_below(text, first, before, behind):
        return True
    if number or len(before) + len(behind) > 40 or not first:
        return False
    above = text[max(0, first - 160) : first].rstrip().split("\n")[-_LINES_ABOVE:]
    return (
        any(_KEEPS.search(line) and _INTRODUCES.search(line) for line in above)
        and not any(map(_OTHER.search, above))
        and not any(map(_ONLY_KEY.search, above))
    )


def _is_below(text: str, first: int, before: str, behind: str) -> bool:
    """Return True if a value is in an indented block below a heading that mentions a secret."""
    if len(before) + len(behind) > 40 or not first:
        return False
    indent = len(before) - len(before.lstrip())
    for line in reversed(text[max(0, first - 600) : first].rstrip().split("\n")):
        if line.strip() and len(line) - len(line.lstrip()) < indent:
            return (
                _HEAD.search(line.rstrip()) is not None and _KEEPS.search(line) is not None and not _OTHER.search(line)
            )
    return False


def _line(text: str, position: int) -> str:
    return text[begun(text, position, 300) : ended(text, position, 300)]
