"""Strange words right behind a word that tells of a secret, whatever stands between: what nobody writes as a word."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from indexer.masking.spans import HIDDEN, NEAR, Span, lines_at, monotone, placeholder, positions_of
from indexer.masking.values import is_strange
from indexer.patterns import late

#: Words in small letters that tell of a secret, by what finds them.
_TELL = late(
    r"(?i)(?<![0-9+/])(?:pass(?:w(?:or)?[dt]s?|wort|phrases?|code)?|(?<![a-z])pw|rootpw|bindpw|pwd|kennwort|mdp|clave|senha|wachtwoord|secrets?|tokens?|"
    r"(?<![a-z])psk|(?:api|access|secret|private|auth|signing|encryption|account|isakmp|decryption|validation|master)[ _-]?keys?|"
    r"cred(?:ential)?s?|(?<![a-z])auth)(?![A-Za-z0-9+/])"
)
_SIGNS = (b"pass", b"pw", b"secret", b"token", b"key", b"auth", b"kennwort", b"senha", b"wachtwoord", b"clave", b"mdp")
#: So far behind it, in so many pieces.
_REACH, _PIECES = 80, 8
_PIECE = late(rf"[^\s\"'`,;<>()\[\]{{}}=|\u201c-\u201f\u2018-\u201b{HIDDEN}]{{8,128}}+")
#: What makes something else of it: a call, a name, an address.
_NOT_BEHIND, _NOT_BEFORE = "(=[", "$@/\\&"
_ABOUT = late(
    r"(?i)public|\bpub\b|fingerprint|sha-?\d|digest|checksum|integrity|\bhash\b|md5|identifier|version|cache|commit|rev-parse|refs/|\bsha\b|://|ENC\[|certificate"
)


def strange_in(text: str, lower: bytes, signs: Collection[bytes]) -> Iterator[Span]:
    """The secrets in `text`, which is `lower` with one byte a character and no capitals, and has these of the signs."""
    places = sorted(place for sign in _SIGNS if sign in signs for place in positions_of(lower, sign))
    for start, end in lines_at(lower, places):
        done = start
        for found in _TELL.finditer(text, start, min(end, start + 2000)):
            if found.end() < done:
                continue
            stop = min(end, found.end() + _REACH)
            for number, piece in enumerate(_PIECE.finditer(text, found.end(), min(end, stop + 128))):
                if piece.start() > stop or number >= _PIECES:
                    break
                done = piece.end()
                if _stands_alone(text, piece.start(), piece.end()) and _is_secret(text, start, piece[0]):
                    value = piece[0].rstrip(".:")
                    yield Span(piece.start(), NEAR, piece.start() + len(value), "secret")


def _stands_alone(text: str, start: int, end: int) -> bool:
    return text[end : end + 1] not in tuple(_NOT_BEHIND) and text[start - 1 : start] not in tuple(_NOT_BEFORE)


def _is_secret(text: str, line: int, piece: str) -> bool:
    value = piece.rstrip(".:").rpartition(":")[2]
    return (
        is_strange(value)
        and not placeholder(piece)
        and not monotone(piece)
        and not _ABOUT.search(text, line, line + 400)
    )
