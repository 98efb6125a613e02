"""Secrets alone in their line below what they are: the answer of a command, a page's field, a file's only line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from indexer.masking.rules import expanded
from indexer.masking.spans import HIDDEN, PHRASE, Span, lines_at, monotone
from indexer.masking.values import is_alone, is_hard, placeholder
from indexer.patterns import late

#: A line has one of these in small letters below which a secret may stand,
_NAMED = (b"pass", b"auth", b"pw", b"secret", b"token", b"key", b"login")
#: or one of those, by a whole word of it.
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
ANSWER_WORDS, ANSWER_LITERALS = tuple(_BY_WORD), (*_NAMED, *_BY_WORD.values())
#: No line that says so is longer.
_LONGEST = 500
_ALONE = late(
    r"[ \t]*\r?\n(?:\r?\n|\s{0,8}(?:```|~~~)\w{0,12}[ \t]*\n)?[ \t]{0,12}(?:1(?:\u2192|\t|: )|- )?"
    rf"(\\{{0,3}}[\"'`]?)([^\s\"'`<>{HIDDEN}]{{6,400}}+)\1[ \t]*(?=\r?\n|\Z)"
)
#: A name and a password, each in its line, and nothing else: what programs read from files of such names.
_TWO_LINES = late(r"\r?\n[\w.@+-]{2,64}\r?\n([^\s]{6,64})[ \t]*(?=\r?\n(?:[$#%>]|\s*\n|```)|\s*\Z)")
_AUTH_FILE = late(
    r"(?i)(?:\b(?:cat|type|less|more|head|bat)\b[^\n|]*|^[\s#;]{0,8}(?:file:? )?[\w./~-]{0,80}/[\w.-]{0,40})"
    r"(?:auth|pass|cred|login|secret)[\w.-]*:?$"
)
#: Commands that print a secret and nothing else.
_GETS = late(expanded("{gets}"))
#: Commands that print what they are told to: then that is called a secret.
_PRINTS = late(expanded("{prints}"))
#: What is called a secret and stands above it, with or without a colon.
_IS_CALLED = late(expanded("{is_called}"))
#: What is said of a secret and is none.
_ABOUT = late(expanded("{about_answers}"))


def asks_for_one(line: str) -> bool:
    """Whether a command, or a line, says that a secret follows and nothing else."""
    last = line.rstrip().rpartition("\n")[2]
    if len(last) > _LONGEST:
        return False
    return bool(_GETS.search(last) or (not _ABOUT.search(last) and (_PRINTS.search(last) or _IS_CALLED.search(last))))


def answers_in(text: str, lower: bytes, signs: Collection[bytes], places: Mapping[bytes, list[int]]) -> Iterator[Span]:
    """The secrets in `text`, which is `lower` with one byte a character and no capitals, and has these of the signs."""
    there = [*_NAMED, *(said for word, said in _BY_WORD.items() if word in signs)]
    for start, end in lines_at(lower, sorted(place for literal in there for place in places.get(literal, ()))):
        found = _ALONE.match(text, end) if end - start < _LONGEST else None
        if (
            end - start < _LONGEST
            and (two := _TWO_LINES.match(text, end))
            and _AUTH_FILE.search(text, start, end)
            and is_hard(two[1])
        ):
            yield Span(two.start(1), PHRASE, two.end(1), "password")
        if found is None or placeholder(found[2]) or monotone(found[2]) or not is_alone(found[2]):
            continue
        if asks_for_one(text[start:end].strip()):
            yield Span(found.start(2), PHRASE, found.end(2), "secret")
