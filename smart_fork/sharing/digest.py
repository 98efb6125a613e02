"""The digest of a session's first n records: a hash chain that can be continued from any state.

d0 = SHA256("smart-fork/records/1");  dn = SHA256(d(n-1) || SHA256(record n));  written "sf1:<hex>"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

from smart_fork.errors import Unshareable

_WRITTEN = re.compile(r"sf1:([0-9a-f]{64})")
#: The state before the first record.
START = sha256(b"smart-fork/records/1").digest()


def states(records: Iterable[bytes], start: bytes = START) -> Iterator[bytes]:
    """Yield the state after each of these canonical records, from `start` on."""
    state = start
    for record in records:
        state = sha256(state + sha256(record).digest()).digest()
        yield state


def state_after(records: Iterable[bytes], start: bytes = START) -> bytes:
    """Return the state after all of these canonical records, from `start` on."""
    state = start
    for state in states(records, start):  # noqa: B007 - the last is what is asked for
        pass
    return state


def written(state: bytes) -> str:
    """Return a state in its written form."""
    return f"sf1:{state.hex()}"


def digest_of(records: Iterable[bytes]) -> str:
    """Return the digest of a session with these canonical records."""
    return written(state_after(records))


def state_of(digest: str) -> bytes:
    """Return the state of a written digest.

    Raises:
        Unshareable: This is not a digest.
    """
    if found := _WRITTEN.fullmatch(digest):
        return bytes.fromhex(found[1])
    raise Unshareable("Not a digest of records: it begins with sf1: and has 64 hexadecimal digits, in small letters.")


#: The digest of no records.
NOTHING = written(START)
