"""How much of everything is taken. Counted are decoded bytes, so that a small archive cannot become a large one."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30

#: A segment ends with the record with which it has so many bytes, or so many records. These two decide how all
#: sessions are cut and are no setting: another number would store everything once more.
SEGMENT_BYTES = 256 << 10
SEGMENT_RECORDS = 512
#: Characters of a title, a name or a tag; of a summary; and how many tags.
TEXT, SUMMARY, TAGS = 200, 2_000, 50


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes; a client keeps to what the server says of them.

    `ratio` is how much larger than its compressed bytes a segment of more than 1 MiB may be.
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
        """The most that a segment can have: all but full, and then the longest record."""
        return SEGMENT_BYTES + self.record_bytes + 1

    @property
    def segment_body_bytes(self) -> int:
        """The most that its compressed bytes can be: what cannot be compressed grows a little."""
        return self.segment_bytes + self.segment_bytes // 256 + 64


LIMITS = Limits()
