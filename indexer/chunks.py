"""Pieces -> chunks: what is embedded and searched, addressed by a hash chained to the chunk before.

Sessions of one family start from the same seed, so the shared beginning of a fork and its parent gives the same hashes
and is stored and embedded once. A chunk never spans two exchanges, so a session that grows
changes only chunks of its last exchange.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from indexer.pieces import Piece, PieceRole

#: About 200 tokens: the embedding model reads 256, and shorter chunks embed faster a character.
CHUNK_CHARACTERS = 800
#: Raised when the same session would be cut differently.
CHUNKER_VERSION = 1

_LABELS = {"user": "User: ", "assistant": "", "action": ""}
_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?])\s"), re.compile(r"\s"))


@dataclass(frozen=True, slots=True)
class Chunk:
    """`hash` is 16 bytes; `turn`, `message_id` and `role` are those of the first piece in it."""

    hash: bytes
    text: str
    turn: int
    message_id: str
    role: PieceRole
    exchange: int


def chunk(pieces: Iterable[Piece], seed: str, limit: int = CHUNK_CHARACTERS) -> tuple[Chunk, ...]:
    """Cut `pieces` into chunks of at most `limit` characters, chained from `seed`. Only white space is left out."""
    chunks: list[Chunk] = []
    parent = hashlib.blake2b(seed.encode("utf-8", "replace"), digest_size=16).digest()
    for first, text in _packed(pieces, limit):
        parent = hashlib.blake2b(parent + text.encode("utf-8", "replace"), digest_size=16).digest()
        chunks.append(Chunk(parent, text, first.turn, first.message_id, first.role, first.exchange))
    return tuple(chunks)


def _packed(pieces: Iterable[Piece], limit: int) -> Iterator[tuple[Piece, str]]:
    """Consecutive parts of one exchange joined while they fit."""
    first: Piece | None = None
    text = ""
    for piece in pieces:
        for part in split_text(_LABELS[piece.role] + piece.text, limit):
            if first is not None and (first.exchange != piece.exchange or len(text) + 1 + len(part) > limit):
                yield first, text
                first = None
            text = f"{text}\n{part}" if first is not None else part
            first = first or piece
    if first is not None:
        yield first, text


def split_text(text: str, limit: int) -> Iterator[str]:
    """`text` in parts of at most `limit` characters, each cut at a paragraph, line, sentence or word."""
    text = text.strip()
    start = 0
    while len(text) - start > limit:
        cut = _cut(text, start, limit)
        if part := text[start:cut].rstrip():
            yield part
        start = cut
        while text[start].isspace():
            start += 1
    if start < len(text):
        yield text[start:]


def _cut(text: str, start: int, limit: int) -> int:
    for pattern in _BREAKS:
        cut = 0
        for found in pattern.finditer(text, start + limit // 2, start + limit):
            cut = found.start()
        if cut > start:
            return cut
    return start + limit
