"""Download shared sessions, and check their records with digests.

Digests that this machine stored before show if a server changed earlier records of a session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from smart_fork.errors import Conflict, NotFound, TooLarge, Unshareable
from smart_fork.sharing import canonical
from smart_fork.sharing.outgoing import SentBefore
from smart_fork.team import wire
from smart_fork.team.client import Client
from smart_fork.team.segments import unpack

#: The most tries to download a session that changes meanwhile.
_DOWNLOAD_TRIES = 3


_DAMAGED_HINT = "The server's answer is damaged. Nothing was written. Try again, or tell its operator."


@dataclass(frozen=True, slots=True)
class Download:
    """A downloaded session: the server's description of it, and its records in canonical (normalized) form."""

    info: wire.SessionInfo
    records: tuple[bytes, ...]


@contextmanager
def _hinted_errors() -> Iterator[None]:
    """Add a hint to each `Unshareable` error in this context: the server's data are damaged."""
    try:
        yield
    except Unshareable as error:
        raise type(error)(error.message, error.hint or _DAMAGED_HINT) from error


def download(client: Client, read: wire.SessionRead, *, base: SentBefore | None = None) -> Download:
    """Download all records of a session. Start again if a push replaces the session's last records meanwhile.

    `base` is the number and digest of the first records that this machine already knows.
    """
    for _ in range(_DOWNLOAD_TRIES):
        try:
            return _downloaded(client, read, base)
        except NotFound:
            known, read = read, client.session(read.session.project, read.session.id)
            if read.session.head_digest == known.session.head_digest:
                raise
    return _downloaded(client, read, base)


@_hinted_errors()
def _downloaded(client: Client, read: wire.SessionRead, base: SentBefore | None) -> Download:
    """Download the records of a session once, and check them.

    Raises:
        Unshareable: the records do not match the server's digests.
        TooLarge: there are more records than a session can have.
        Conflict: the records do not begin with the already known ones in `base`.
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
        for line, after in zip(lines, canonical.chain_states(lines, state), strict=True):
            records.append(line)
            if len(records) in wanted:
                known[len(records)] = after
        state = canonical.state_after(lines, state)
    if len(records) != info.record_count or canonical.digest_of_state(state) != info.head_digest:
        raise Unshareable("The records do not match the server's digest.")
    if canonical.digest_of_state(known.get(info.base_count, b"")) != info.base_digest:
        raise Unshareable("The first records do not match the server's digest.")
    if base is not None and canonical.digest_of_state(known.get(base.count, b"")) != base.digest:
        raise Conflict(
            "The remote session has changed its past.",
            "Its owner may have withdrawn messages. Run smart-fork team sync, or accept it with --force.",
        )
    return Download(info, tuple(records))


@_hinted_errors()
def open_segment(client: Client, read: wire.SessionRead) -> tuple[int, list[bytes]]:
    """Return where a push continues a session: the number of segments that stay, and records to send again.

    These are the records of the last segment (block of records) if that has room. A segment has no room if it is full,
    or if the parent uses it too. Raise `Unshareable` if the records do not match the session's digest.
    """
    if not read.segments:
        return 0, []
    last = read.segments[-1]
    if last.full or last.end == read.session.base_count:
        return len(read.segments), []
    lines = unpack(client.segment(read.session.project, last.digest), last.digest)
    end = canonical.digest_of_state(canonical.state_after(lines, last.chain_start))
    if end != read.session.head_digest or last.first_record + len(lines) != read.session.record_count:
        raise Unshareable("The last records do not match the server's digest.")
    return len(read.segments) - 1, lines


def _check_bounds(read: wire.SessionRead) -> None:
    records = sum(place.records for place in read.segments)
    size = sum(place.raw_bytes for place in read.segments)
    if records > canonical.LIMITS.session_records or size > canonical.LIMITS.session_bytes:
        raise TooLarge(f"The session has {records} records and {size} bytes, more than the limit.")
