"""Abridged decoding of JSON lines that are too long: each long text is replaced by a note with its length.

The rest of the record stays. The line is read in pieces, so that memory is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Maximum length of a text that is kept; of a text behind the third number of bytes of the line, a smaller maximum.
LONG_TEXT, SHORT_TEXT, MANY_BYTES = 1 << 16, 1 << 10, 8 << 20
#: Number of bytes of an abridged line behind which an object or list ends with what it has so far.
MAX_BYTES = 16 << 20
#: Maximum number of brackets, commas and texts of a line. A line with more, such as a million lists, is no record.
MAX_TOKENS = 3_000_000
#: The note that replaces a long text.
INSTEAD = re.compile(rb'"\[a text of [0-9,]+ bytes, too long to be read\]"')
_TEXT = re.compile(rb'(?>(?:[^"\\]++|\\.)*)', re.DOTALL)
_BETWEEN = re.compile(rb'[^"{}\[\],]*+')
_OPEN, _CLOSE = b"{[", b"}]"


def abridged(pieces: Iterable[bytes]) -> bytes | None:
    """Return the line of these `pieces` without its long texts; `None` if it is still too long."""
    line = _Line()
    for piece in pieces:
        if not line.read(piece):
            return None
    return bytes(line.made)


def instead(size: int) -> str:
    """Return the note that replaces a text of `size` bytes."""
    return f"[a text of {size:,} bytes, too long to be read]"


class _Line:
    """The beginning of a line without its long texts. It grows with each piece of the line that is read."""

    def __init__(self) -> None:
        self.made = bytearray()
        self._rest = b""
        self._text: bytearray | None = None
        self._size = 0
        self._tokens = 0
        self._depth = 0
        #: The depth of the object or list whose rest is dropped, or `None`.
        self._ended: int | None = None

    def read(self, piece: bytes) -> bool:
        """Read the next piece of the line. Return False if the abridged line is too long."""
        data, at = self._rest + piece, 0
        self._rest = b""
        while at < len(data) and self._tokens <= MAX_TOKENS:
            self._tokens += 1
            at = self._between(data, at) if self._text is None else self._within(data, at)
            if at < 0:  # an escape is parted
                self._rest = data[at:]
                break
        return len(self.made) <= 2 * MAX_BYTES and self._tokens <= MAX_TOKENS

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
        elif self._ended is None and self._depth > 1 and len(self.made) > MAX_BYTES:
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
