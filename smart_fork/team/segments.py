"""The records of shared sessions, packed into segments (compressed blocks).

Both client and server use this module. Where a segment ends depends only on the records before it, so a session and its
forks share segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

import zstandard
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints
from pydantic.dataclasses import dataclass as checked

from smart_fork.errors import TooLarge, Unshareable
from smart_fork.sharing import canonical

_COMPRESSION_LEVEL = 6
#: The compression ratio of smaller segments is not checked: harmless text, such as many blanks, compresses well.
_UNCHECKED_RATIO_BYTES = canonical.MIB


def _state(value: object) -> object:
    try:
        return canonical.state_of(value) if isinstance(value, str) else value
    except Unshareable as error:
        raise ValueError(error.message) from error


_Size = Annotated[int, Field(ge=0, le=1 << 40)]


@checked(frozen=True, slots=True, config=ConfigDict(strict=True, extra="forbid"))
class SegmentPlace:
    """The position of a segment (a block of records) in its session, and the segment's size and digest.

    `digest` is the hexadecimal SHA-256 of the segment's records, and `raw_bytes` their size. `chain_start` is the
    digest of all records before the segment.
    """

    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    first_record: _Size
    records: Annotated[int, Field(ge=1, le=canonical.SEGMENT_RECORDS)]
    raw_bytes: _Size
    chain_start: Annotated[bytes, BeforeValidator(_state), PlainSerializer(canonical.digest_of_state, when_used="json")]

    @property
    def end(self) -> int:
        """The number of the first record after the segment."""
        return self.first_record + self.records

    @property
    def full(self) -> bool:
        """True if the segment has no room: the next record starts a new segment."""
        return self.raw_bytes >= canonical.SEGMENT_BYTES or self.records >= canonical.SEGMENT_RECORDS


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment (a block of records) and its compressed bytes."""

    place: SegmentPlace
    body: bytes


def pack(records: Iterable[bytes], first_record: int = 0, chain_start: bytes = canonical.START) -> Iterator[Segment]:
    """Yield canonical records as segments (compressed blocks). The first record must begin a segment.

    `first_record` is its number in the session, and `chain_start` the digest of all records before it. To extend a last
    segment that is not full, pass that segment's records again, before the new ones.
    """
    waiting: list[bytes] = []
    size = 0
    for record in records:
        waiting.append(record)
        size += len(record) + 1
        if size >= canonical.SEGMENT_BYTES or len(waiting) >= canonical.SEGMENT_RECORDS:
            segment = _packed(waiting, first_record, chain_start)
            yield segment
            first_record, chain_start = segment.place.end, canonical.state_after(waiting, chain_start)
            waiting, size = [], 0
    if waiting:
        yield _packed(waiting, first_record, chain_start)


def unpack(body: bytes, digest: str) -> list[bytes]:
    """Return the canonical records of a segment from its compressed bytes, which may come from an attacker.

    Raises:
        TooLarge: The data is larger than a segment can be.
        Unshareable: The data is damaged, does not match `digest`, or its records are not canonical.
    """
    raw = _decompressed(body)
    if sha256(raw).hexdigest() != digest:
        raise Unshareable("A segment does not match its digest.")
    if not raw.endswith(b"\n"):
        raise Unshareable("The last record of a segment is cut off.")
    records = raw[:-1].split(b"\n")
    if len(records) > canonical.SEGMENT_RECORDS:
        raise TooLarge(f"A segment has {len(records)} records; at most {canonical.SEGMENT_RECORDS} are allowed.")
    for record in records:
        canonical.decode(record)
    if sum(len(record) + 1 for record in records[:-1]) >= canonical.SEGMENT_BYTES:
        raise Unshareable("A segment is longer than announced.")
    return records


def cut_segments(
    places: Sequence[SegmentPlace], count: int, body_of: Callable[[SegmentPlace], bytes]
) -> tuple[list[SegmentPlace], Segment | None]:
    """Shorten a session's list of segments (blocks of records) to `count` records.

    Return the segments that stay whole, and a shorter one if the end is inside of a segment, or `None`. `body_of` reads
    a segment's compressed bytes.

    Raises:
        Unshareable: the session has fewer records, or a segment is damaged.
    """
    if not 0 <= count <= (places[-1].end if places else 0):
        raise Unshareable(f"A session does not have {count} records.")
    kept = [place for place in places if place.end <= count]
    if len(kept) == len(places) or places[len(kept)].first_record == count:
        return kept, None
    last = places[len(kept)]
    records = unpack(body_of(last), last.digest)[: count - last.first_record]
    return kept, _packed(records, last.first_record, last.chain_start)


def _packed(records: Sequence[bytes], first_record: int, chain_start: bytes) -> Segment:
    raw = b"".join(record + b"\n" for record in records)
    body = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL).compress(raw)
    _check_size(len(raw), len(body))
    return Segment(SegmentPlace(sha256(raw).hexdigest(), first_record, len(records), len(raw), chain_start), body)


def _decompressed(body: bytes) -> bytes:
    """Decompress a segment. Its announced size is checked first, and the library never writes more."""
    try:
        size = zstandard.get_frame_parameters(body).content_size
        if size == zstandard.CONTENTSIZE_UNKNOWN:
            raise Unshareable("A segment does not say how large it is.")
        _check_size(size, len(body))
        return zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Unshareable(f"A segment is damaged: {error}") from error


def _check_size(raw: int, compressed: int) -> None:
    if raw > canonical.LIMITS.segment_bytes:
        raise TooLarge(f"A segment has {raw} bytes; at most {canonical.LIMITS.segment_bytes} are allowed.")
    if raw > _UNCHECKED_RATIO_BYTES and raw > compressed * canonical.LIMITS.ratio:
        raise TooLarge(f"A segment is more than {canonical.LIMITS.ratio} times as large as its compressed bytes.")
