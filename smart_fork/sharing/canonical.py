"""Canonical JSON: a record always has the same bytes, whatever program wrote it.

UTF-8, sorted names, no white space. A value that JSON cannot represent exactly is refused, not mended: a number that is
not a double, half a surrogate, a name that occurs twice.

The digest of a session's first n records is a hash chain, which can be continued from any state:

d0 = SHA256("smart-fork/records/1");  dn = SHA256(d(n-1) || SHA256(record n));  written "sf1:<hex>"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

import orjson

from smart_fork.errors import TooLarge, Unshareable
from smart_fork.sharing.limits import LIMITS

Record = dict[str, Any]


def encode(record: Record) -> bytes:
    """Return the canonical bytes of a record.

    Raises:
        Unshareable: Decoding the bytes would give another record.
        TooLarge: The record is too long or too deep.
    """
    try:
        data = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
        same = orjson.loads(data) == record
    except (orjson.JSONEncodeError, orjson.JSONDecodeError, RecursionError) as error:
        raise Unshareable(f"A record cannot be written as JSON: {error}") from error
    if not same:
        raise Unshareable("A record changes when JSON writes and reads it.")
    _check_length(data)
    _check_depth(data, record)
    return data


def decode(data: bytes) -> Record:
    """Return the record with exactly these canonical bytes.

    Raises:
        Unshareable: The bytes are not a record, or not canonical.
        TooLarge: The record is too long or too deep.
    """
    _check_length(data)
    try:
        record = orjson.loads(data)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise Unshareable(f"A record is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise Unshareable(f"A record is a JSON {type(record).__name__}, not an object.")
    _check_depth(data, record)
    if orjson.dumps(record, option=orjson.OPT_SORT_KEYS) != data:
        raise Unshareable("A record is not in its canonical form.")
    return record


def _check_length(data: bytes) -> None:
    if len(data) > LIMITS.record_bytes:
        raise TooLarge(f"A record has {len(data)} bytes; at most {LIMITS.record_bytes} are allowed.")


def _check_depth(data: bytes, record: Record) -> None:
    if data.count(b"{") + data.count(b"[") <= LIMITS.depth:  # of nearly all records; no deeper than there are brackets
        return
    level: list[Any] = [record]
    for _ in range(LIMITS.depth):
        level = [part for value in level for part in _parts(value) if isinstance(part, dict | list)]
        if not level:
            return
    raise TooLarge(f"A record is nested more than {LIMITS.depth} deep.")


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


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
