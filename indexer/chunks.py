"""Pieces -> chunks: what is embedded and searched, addressed by a hash chained to the chunk before.

Sessions of one family start from the same seed, so the shared beginning of a fork and its parent gives the same hashes
and is stored and embedded once. A chunk never spans two exchanges, so a session that grows
changes only chunks of its last exchange.

A chunk is a span of the session's export: its text is that of the lines, from where it begins on the first to where it
ends on the last, without headings, marks of actions, and the white space around them. "User: " stands for a heading;
the backslash before a line that only looks like a heading or an action of ours is left out too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from indexer.patterns import late
from indexer.pieces import Piece, PieceRole
from indexer.shapes import dataclass

#: About 200 tokens: the embedding model reads 256, and shorter chunks embed faster a character.
CHUNK_CHARACTERS = 800

LABELS = {"user": "User: ", "assistant": "", "action": ""}
_BREAKS = (late(r"\n\s*\n"), late(r"\n"), late(r"(?<=[.!?])\s"), late(r"\s"))


#: Where in a text somebody else begins to speak, and who.
Voices = tuple[tuple[int, PieceRole], ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """`hash` is 16 bytes; `turn`, `message_id` and `role` are those of the first piece in it.

    `lines` are the first and the last line of the export that it stands on, from 1; `voices` says where in the text
    others begin: what was said or done next, and by whom.
    """

    hash: bytes
    text: str
    turn: int
    message_id: str
    role: PieceRole
    exchange: int
    lines: tuple[int, int] = (0, 0)
    voices: Voices = ()


def chunk(pieces: Iterable[Piece], seed: str, limit: int = CHUNK_CHARACTERS) -> tuple[Chunk, ...]:
    """Cut `pieces` into chunks of at most `limit` characters, chained from `seed`. Only white space is left out."""
    packed = list(_packed(pieces, limit))
    return tuple(
        Chunk(digest, text, first.turn, first.message_id, first.role, first.exchange, lines, voices)
        for digest, (first, text, lines, voices) in zip(chained((one[1] for one in packed), seed), packed, strict=True)
    )


def chained(texts: Iterable[str], seed: str) -> Iterator[bytes]:
    """The hashes of chunks with these texts."""
    parent = hashlib.blake2b(seed.encode("utf-8", "replace"), digest_size=16).digest()
    for text in texts:
        parent = hashlib.blake2b(parent + text.encode("utf-8", "replace"), digest_size=16).digest()
        yield parent


def _packed(pieces: Iterable[Piece], limit: int) -> Iterator[tuple[Piece, str, tuple[int, int], Voices]]:
    """Consecutive parts of one exchange joined while they fit, with the lines that they stand on and who says what."""
    first: Piece | None = None
    text, begins, ends = "", 0, 0
    voices: list[tuple[int, PieceRole]] = []
    apart = False
    for piece in pieces:
        apart = apart or piece.apart or piece.summary
        labelled = bool(LABELS[piece.role])
        for part, line in () if piece.summary else _placed(piece, limit):
            if first is not None and (first.exchange != piece.exchange or apart or len(text) + 1 + len(part) > limit):
                yield first, text, (begins, ends), tuple(voices)
                first = None
            if first is None:
                first, text, begins, voices = piece, part, line, []
            else:
                if labelled or piece.role != (voices[-1][1] if voices else first.role):
                    voices.append((len(text) + 1, piece.role))
                text = f"{text}\n{part}"
            ends, apart, labelled = line + part.count("\n"), False, False
    if first is not None:
        yield first, text, (begins, ends), tuple(voices)


def _placed(piece: Piece, limit: int) -> Iterator[tuple[str, int]]:
    """The parts of a piece, each with the line on which it begins."""
    text = LABELS[piece.role] + piece.text
    line, before = piece.line, 0
    for start, end in split(text, limit):
        line += text.count("\n", before, start)
        yield text[start:end], line
        before = start


def split(text: str, limit: int) -> Iterator[tuple[int, int]]:
    """Where parts of `text` of at most `limit` characters begin and end, cut at a paragraph, line, sentence or word."""
    start, last = len(text) - len(text.lstrip()), len(text.rstrip())
    while last - start > limit:
        cut = _cut(text, start, limit)
        yield start, start + len(text[start:cut].rstrip())
        start = cut
        while text[start].isspace():
            start += 1
    if start < last:
        yield start, last


def _cut(text: str, start: int, limit: int) -> int:
    for pattern in _BREAKS:
        cut = 0
        for found in pattern.finditer(text, start + limit // 2, start + limit):
            cut = found.start()
        if cut > start:
            return cut
    return start + limit
