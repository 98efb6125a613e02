"""A line of JSON that is too long to be decoded, abridged: its long texts become what they are, and how long.

All else of it stays, so that its record counts where it stands. It is read in pieces, however long it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Longer texts are abridged; behind so many bytes of a line also shorter ones.
LONG_TEXT, SHORT_TEXT, MANY_BYTES = 1 << 16, 1 << 10, 8 << 20
#: Behind so many bytes an object or list ends with what it has by then.
MOST_BYTES = 16 << 20
#: A line of more marks and texts, such as one of a million lists, is no record.
MOST_TOKENS = 3_000_000
#: What stands in a line for its long texts.
INSTEAD = re.compile(rb'"\[a text of [0-9,]+ bytes, too long to be read\]"')
_TEXT = re.compile(rb'(?>(?:[^"\\]++|\\.)*)', re.DOTALL)
_BETWEEN = re.compile(rb'[^"{}\[\],]*+')
_OPEN, _CLOSE = b"{[", b"}]"


def abridged(pieces: Iterable[bytes]) -> bytes | None:
    """The line without its long texts; `None` where that is too long as well."""
    line = _Line()
    for piece in pieces:
        if not line.read(piece):
            return None
    return bytes(line.made)


def instead(size: int) -> str:
    """Return the replacement for a text of so many bytes."""
    return f"[a text of {size:,} bytes, too long to be read]"


class _Line:
    """The kept part of a line so far."""

    def __init__(self) -> None:
        self.made = bytearray()
        self._rest = b""
        self._text: bytearray | None = None
        self._size = 0
        self._tokens = 0
        self._depth = 0
        #: The depth of the object or list that is ended, whatever it has yet.
        self._ended: int | None = None

    def read(self, piece: bytes) -> bool:
        """Take the next piece. False where that is too much."""
        data, at = self._rest + piece, 0
        self._rest = b""
        while at < len(data) and self._tokens <= MOST_TOKENS:
            self._tokens += 1
            at = self._between(data, at) if self._text is None else self._within(data, at)
            if at < 0:  # an escape is parted
                self._rest = data[at:]
                break
        return len(self.made) <= 2 * MOST_BYTES and self._tokens <= MOST_TOKENS

    def _between(self, data: bytes, at: int) -> int:
        end = _BETWEEN.match(data, at).end()  # type: ignore[union-attr]
        self._keep(data[at:end])
        if end == len(data):
            return end
        mark = data[end : end + 1]
        if mark == b'"':
            self._text, self._size = bytearray(), 0
        elif mark in _OPEN:
            self._depth += 1
            self._keep(mark)
        elif mark in _CLOSE:
            if self._ended == self._depth:
                self._ended = None
            self._depth -= 1
            self._keep(mark)
        elif self._ended is None and self._depth > 1 and len(self.made) > MOST_BYTES:
            self._ended = self._depth
        else:
            self._keep(mark)
        return end + 1

    def _within(self, data: bytes, at: int) -> int:
        text = self._text
        end = _TEXT.match(data, at).end()  # type: ignore[union-attr]
        self._size += end - at
        if text is not None and len(text) <= LONG_TEXT:
            text += data[at:end]
        if end == len(data):
            return end
        if data[end : end + 1] == b"\\":  # the last byte: what it escapes comes with the next piece
            return end - len(data)
        most = LONG_TEXT if len(self.made) < MANY_BYTES else SHORT_TEXT
        said = bytes(text or b"") if self._size <= most else instead(self._size).encode()
        self._keep(b'"' + said + b'"')
        self._text = None
        return end + 1

    def _keep(self, some: bytes) -> None:
        if self._ended is None:
            self.made += some
