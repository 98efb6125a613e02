"""The records of a session from a server, checked on their way: a server cannot change the past unseen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from smart_fork.errors import Conflict, NotFound, TooLarge, Unshareable
from smart_fork.sharing import canonical
from smart_fork.sharing.outgoing import SentBefore
from smart_fork.team import wire
from smart_fork.team.client import Client
from smart_fork.team.records import unpack

#: So often a session is read again that was pushed to meanwhile.
_TRIES = 3
_THEIRS = "The server's answer is damaged. Nothing was written. Try again, or tell its operator."


@dataclass(frozen=True, slots=True)
class Download:
    """A session, and its canonical records."""

    info: wire.SessionInfo
    records: tuple[bytes, ...]


@contextmanager
def _looked_at() -> Iterator[None]:
    """Report defects of a server's data as the server's error. Nothing of it is written."""
    try:
        yield
    except Unshareable as error:
        raise type(error)(error.message, error.hint or _THEIRS) from error


def download(client: Client, read: wire.SessionRead, *, base: SentBefore | None = None) -> Download:
    """All records of a session, as it is now where a push has replaced its last segment meanwhile.

    Raises:
        SmartForkError: as `_downloaded`.
    """
    for _ in range(_TRIES):
        try:
            return _downloaded(client, read, base)
        except NotFound:
            known, read = read, client.session(read.session.project, read.session.id)
            if read.session.head_digest == known.session.head_digest:
                raise
    return _downloaded(client, read, base)


@_looked_at()
def _downloaded(client: Client, read: wire.SessionRead, base: SentBefore | None) -> Download:
    """The records that a server says to have.

    Raises:
        Unshareable: they are not what the server says of them.
        TooLarge: there are more than a session can have.
        Conflict: the past that is tracked here is not theirs: a server cannot change it unseen.
    """
    info = read.session
    _check_bounds(read)
    records: list[bytes] = []
    state, known = canonical.START, {0: canonical.START}
    wanted = {info.base_count, *([base.count] if base else [])}
    for place in read.segments:
        if place.first_record != len(records) or place.chain_start != state:
            raise Unshareable("A segment does not begin where the one before it ends.")
        lines = unpack(client.segment(info.project, place.digest), place.digest)
        if len(lines) != place.records:
            raise Unshareable("A segment has a wrong number of records.")
        for line, after in zip(lines, canonical.states(lines, state), strict=True):
            records.append(line)
            if len(records) in wanted:
                known[len(records)] = after
        state = canonical.state_after(lines, state)
    if len(records) != info.record_count or canonical.written(state) != info.head_digest:
        raise Unshareable("The records do not match the server's digest.")
    if canonical.written(known.get(info.base_count, b"")) != info.base_digest:
        raise Unshareable("The first records do not match the server's digest.")
    if base is not None and canonical.written(known.get(base.count, b"")) != base.digest:
        raise Conflict(
            "The remote session has changed its past.",
            "Its owner may have withdrawn messages. Run smart-fork team sync, or accept it with --force.",
        )
    return Download(info, tuple(records))


@_looked_at()
def tail(client: Client, read: wire.SessionRead) -> tuple[int, list[bytes]]:
    """The records of the last segment, if more fit into it, and the number of segments before it. Into one of what a
    session was made of nothing fits: others have it, too.

    Raises:
        Unshareable: they do not lead to the digest of the session.
    """
    if not read.segments:
        return 0, []
    last = read.segments[-1]
    if last.full or last.end == read.session.base_count:
        return len(read.segments), []
    lines = unpack(client.segment(read.session.project, last.digest), last.digest)
    end = canonical.written(canonical.state_after(lines, last.chain_start))
    if end != read.session.head_digest or last.first_record + len(lines) != read.session.record_count:
        raise Unshareable("The last records do not match the server's digest.")
    return len(read.segments) - 1, lines


def _check_bounds(read: wire.SessionRead) -> None:
    records = sum(place.records for place in read.segments)
    size = sum(place.raw_bytes for place in read.segments)
    if records > canonical.LIMITS.session_records or size > canonical.LIMITS.session_bytes:
        raise TooLarge(f"The session has {records} records and {size} bytes, more than the limit.")
