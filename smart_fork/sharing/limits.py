"""Limits of sizes. They apply to decoded bytes, so that a small archive cannot expand into a large one."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30

#: A segment ends with the record that reaches this many bytes, or this many records. Both numbers decide the segments
#: of all sessions, so they are not settings: other numbers would store everything once more.
SEGMENT_BYTES = 256 << 10
SEGMENT_RECORDS = 512
#: The most characters of a title, name or tag, and of a summary; the most tags.
TEXT, SUMMARY, TAGS = 200, 2_000, 50


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server, which its clients respect.

    A segment of more than 1 MiB may be at most `ratio` times as large as its compressed bytes.
    """

    record_bytes: int = 8 * MIB
    depth: int = 64
    session_bytes: int = 200 * MIB
    session_records: int = 200_000
    ratio: int = 200
    user_bytes: int = 5 * GIB
    project_bytes: int = 50 * GIB
    requests_a_minute: int = 1_000
    bytes_an_hour: int = 200 * MIB
    body_seconds: float = 30

    @property
    def segment_bytes(self) -> int:
        """The largest size of a segment: nearly full, then the longest record."""
        return SEGMENT_BYTES + self.record_bytes + 1

    @property
    def segment_body_bytes(self) -> int:
        """The largest size of a segment's compressed bytes. Incompressible data grows a little."""
        return self.segment_bytes + self.segment_bytes // 256 + 64


LIMITS = Limits()
