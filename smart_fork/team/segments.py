"""Records packed into segments, the units that are stored and sent.

The end of a segment depends only on the records from the session's start, so all sessions of a family share their
segments up to where they part. A segment's digest is the SHA-256 of its records before compression, one a line. Another
version of the compressor writes other bytes, but the same segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints
from pydantic.dataclasses import dataclass as checked

from smart_fork.errors import TooLarge, Unshareable
from smart_fork.sharing import canonical, limits

_LEVEL = 6
#: Smaller segments need no ratio check: a screen of spaces compresses well.
_FREE_BYTES = limits.MIB


def _state(value: object) -> object:
    try:
        return canonical.state_of(value) if isinstance(value, str) else value
    except Unshareable as error:
        raise ValueError(error.message) from error


_Size = Annotated[int, Field(ge=0, le=1 << 40)]


@checked(frozen=True, slots=True, config=ConfigDict(strict=True, extra="forbid"))
class Place:
    """A segment's position in a session: first record, number of records, and the chain's state before it.

    `digest` is the hexadecimal SHA-256 of its records, and `raw_bytes` their size.
    """

    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    first_record: _Size
    records: Annotated[int, Field(ge=1, le=limits.SEGMENT_RECORDS)]
    raw_bytes: _Size
    chain_start: Annotated[bytes, BeforeValidator(_state), PlainSerializer(canonical.written, when_used="json")]

    @property
    def end(self) -> int:
        """The number of the record after the segment."""
        return self.first_record + self.records

    @property
    def full(self) -> bool:
        """Return True if the next record starts a new segment."""
        return self.raw_bytes >= limits.SEGMENT_BYTES or self.records >= limits.SEGMENT_RECORDS


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment and its compressed bytes."""

    place: Place
    body: bytes


def pack(records: Iterable[bytes], first_record: int = 0, chain_start: bytes = canonical.START) -> Iterator[Segment]:
    """Yield canonical records as segments, from the beginning of a segment on.

    To continue a session whose last segment is not full, pass its records again, with its position.

    Raises:
        TooLarge: The records compress so well that a server would refuse them.
    """
    waiting: list[bytes] = []
    size = 0
    for record in records:
        waiting.append(record)
        size += len(record) + 1
        if size >= limits.SEGMENT_BYTES or len(waiting) >= limits.SEGMENT_RECORDS:
            segment = _packed(waiting, first_record, chain_start)
            yield segment
            first_record, chain_start = segment.place.end, canonical.state_after(waiting, chain_start)
            waiting, size = [], 0
    if waiting:
        yield _packed(waiting, first_record, chain_start)


def unpack(body: bytes, digest: str) -> list[bytes]:
    """Return the canonical records of an untrusted segment.

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
    if len(records) > limits.SEGMENT_RECORDS:
        raise TooLarge(f"A segment has {len(records)} records; at most {limits.SEGMENT_RECORDS} are allowed.")
    for record in records:
        canonical.decode(record)
    if sum(len(record) + 1 for record in records[:-1]) >= limits.SEGMENT_BYTES:
        raise Unshareable("A segment is longer than announced.")
    return records


def cut(places: Sequence[Place], count: int, body_of: Callable[[Place], bytes]) -> tuple[list[Place], Segment | None]:
    """Cut a session after `count` records: return the unchanged segments, and the split one packed again.

    Raises:
        Unshareable: The session has fewer records, or a segment is damaged.
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
    import zstandard

    raw = b"".join(record + b"\n" for record in records)
    body = zstandard.ZstdCompressor(level=_LEVEL).compress(raw)
    _check_size(len(raw), len(body))
    return Segment(Place(sha256(raw).hexdigest(), first_record, len(records), len(raw), chain_start), body)


def _decompressed(body: bytes) -> bytes:
    """Decompress one frame. Its announced size is checked before memory is allocated, and the library enforces it."""
    import zstandard

    try:
        size = zstandard.get_frame_parameters(body).content_size
        if size == zstandard.CONTENTSIZE_UNKNOWN:
            raise Unshareable("A segment does not say how large it is.")
        _check_size(size, len(body))
        return zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Unshareable(f"A segment is damaged: {error}") from error


def _check_size(raw: int, compressed: int) -> None:
    if raw > limits.LIMITS.segment_bytes:
        raise TooLarge(f"A segment has {raw} bytes; at most {limits.LIMITS.segment_bytes} are allowed.")
    if raw > _FREE_BYTES and raw > compressed * limits.LIMITS.ratio:
        raise TooLarge(f"A segment is more than {limits.LIMITS.ratio} times as large as its compressed bytes.")
