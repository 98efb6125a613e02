"""A session whose records are edited: which segments it has then, and what it is counted as. This asks no database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from smart_fork.errors import Usage
from smart_fork.sharing.canonical import decode, state_after
from smart_fork.sharing.segments import Place, Segment, pack, unpack
from smart_fork.sharing.wire import Rewrite

#: By the SHA-256 of a record what takes its place, or nothing.
Edits = Mapping[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Edited:
    """A session after its edits: the segments from `position` on, its base, its records. `done` are the edits that
    applied.
    """

    position: int
    segments: tuple[Segment, ...]
    base_count: int
    base_digest: bytes
    record_count: int
    head_digest: bytes
    done: frozenset[bytes]


def checked(wanted: Rewrite) -> dict[bytes, bytes | None]:
    """The edits that somebody sends, with the records that they bring.

    Raises:
        Usage: They contradict each other, or name other records than they bring.
        Unshareable: A record is not canonical, or too large.
    """
    for record in wanted.records:
        decode(record)
    sent = {sha256(record).hexdigest(): record for record in wanted.records}
    olds = {edit.old for edit in wanted.edits}
    news = {edit.new for edit in wanted.edits if edit.new is not None}
    if len(olds) < len(wanted.edits) or news & olds:
        raise Usage("A record is replaced twice.")
    if news != set(sent):
        raise Usage("The records are not those that the edits name.")
    return {bytes.fromhex(edit.old): sent[edit.new] if edit.new else None for edit in wanted.edits}


def edited(
    places: Sequence[Place],
    body_of: Callable[[Place], bytes],
    edits: Edits,
    *,
    protected: int,
    base: tuple[int, bytes],
) -> Edited | None:
    """A session after its edits; None where no record behind the first `protected` ones is one of them.

    Segments before the first change stay as they are.
    """
    done: set[bytes] = set()
    old: list[bytes] = []
    position: int | None = None
    for number, place in enumerate(places):
        if place.end <= protected:
            continue
        records = unpack(body_of(place), place.digest)
        reached = records[max(0, protected - place.first_record) :]
        hits = {digest for record in reached if (digest := sha256(record).digest()) in edits}
        done |= hits
        if hits and position is None:
            position = number
        if position is not None:
            old += records
    if position is None:
        return None
    first = places[position]
    start = first.first_record, first.chain_start
    new, count = _with(edits, old, start[0], protected=protected, base_count=base[0])
    return Edited(
        position,
        tuple(pack(new, *start)),
        count,
        base[1] if base[0] <= start[0] else state_after(new[: count - start[0]], start[1]),
        start[0] + len(new),
        state_after(new, start[1]),
        frozenset(done),
    )


def _with(
    edits: Edits, records: Iterable[bytes], first: int, *, protected: int, base_count: int
) -> tuple[list[bytes], int]:
    """The records after their edits, and how many of the session's are its base then."""
    new: list[bytes] = []
    count = base_count
    for number, record in enumerate(records, first):
        digest = sha256(record).digest()
        if number < protected or digest not in edits:
            new.append(record)
        elif (replaced := edits[digest]) is not None:
            new.append(replaced)
        elif number < base_count:
            count -= 1
    return new, count
