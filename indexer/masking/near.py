"""Strange words right behind a word that tells of a secret, whatever stands between: what nobody writes as a word."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from indexer.masking.spans import HIDDEN, NEAR, Span, monotone, placeholder, positions_of
from indexer.masking.values import is_strange
from indexer.patterns import late

#: What tells of a secret, by how it begins.
_SIGNS = (b"pass", b"pw", b"secret", b"token", b"key", b"auth", b"kennwort", b"senha", b"wachtwoord", b"clave", b"mdp")
_KEY_OWNERS = "api|access|secret|private|auth|signing|encryption|account|isakmp|decryption|validation|master"
_TELLS = late(
    r"(?i)(?:pass(?:w(?:or)?ds?|wort|phrases?|code)?|(?:(?<![a-z0-9+/])|(?<=root)|(?<=bind))pwd?|kennwort|mdp|"
    r"clave|senha|wachtwoord|"
    r"secrets?|tokens?|(?<![a-z0-9])auth|"
    rf"(?:{'|'.join(f'(?<={owner})|(?<={owner}[ _-])' for owner in _KEY_OWNERS.split('|'))})keys?)(?![A-Za-z0-9+/])"
)
#: So far behind it, in so many pieces.
_REACH, _PIECES, _LONGEST = 80, 8, 128
_PIECE = late(rf"[^\s\"'`,;<>()\[\]{{}}=|\u201c-\u201f\u2018-\u201b{HIDDEN}]{{8,{_LONGEST}}}+")
_DIGIT = late(rb"[0-9]")
#: What makes something else of a piece: a call, a name, an address.
_BEHIND, _BEFORE = frozenset("(=["), frozenset("$@/\\&")
#: What is said of a secret in a line and is none.
_ABOUT = late(
    r"(?i)public|\bpub\b|fingerprint|sha-?\d|digest|checksum|integrity|\bhash\b|md5|identifier|version|cache|"
    r"commit|rev-parse|refs/|"
    r"\bsha\b|://|ENC\[|certificate"
)


def strange_in(text: str, lower: bytes, signs: Collection[bytes]) -> Iterator[Span]:
    """The secrets in `text`, which is `lower` with one byte a character and no capitals, and has these of the signs."""
    for sign in _SIGNS:
        done = 0
        for place in positions_of(lower, sign) if sign in signs else ():
            if place >= done and (found := _TELLS.match(text, place)):
                for start, end in _pieces(text, lower, found.end()):
                    done = end
                    yield Span(start, NEAR, end, "secret")


def _pieces(text: str, lower: bytes, position: int) -> Iterator[tuple[int, int]]:
    """Where strange words are in the line behind a position."""
    stop = position + _REACH
    if not _DIGIT.search(lower, position, stop + _LONGEST):
        return
    line = lower.find(b"\n", position, stop + _LONGEST)
    for number, piece in enumerate(_PIECE.finditer(text, position, line if line >= 0 else stop + _LONGEST)):
        if piece.start() > stop or number >= _PIECES:
            return
        value = piece[0].rstrip(".:")
        if (
            text[piece.end() : piece.end() + 1] not in _BEHIND
            and text[piece.start() - 1] not in _BEFORE
            and is_strange(value.rpartition(":")[2])
            and not placeholder(value)
            and not monotone(value)
            and not _ABOUT.search(_line(text, position))
        ):
            yield piece.start(), piece.start() + len(value)


def _line(text: str, position: int) -> str:
    start = max(text.rfind("\n", max(0, position - 300), position) + 1, position - 300, 0)
    end = text.find("\n", position, position + 300)
    return text[start : end if end >= 0 else position + 300]
