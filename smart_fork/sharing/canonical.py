"""Canonical JSON: one record is always the same bytes, whoever wrote it and however it was spelled.

UTF-8, names sorted, no white space. What would come back as something else is refused, not mended: a number that is no
double, half a surrogate, a name that is there twice.
"""

from __future__ import annotations

from typing import Any

import orjson

from smart_fork.errors import TooLarge, Unshareable
from smart_fork.sharing.limits import LIMITS, Limits

Record = dict[str, Any]


def encode(record: Record, limits: Limits = LIMITS) -> bytes:
    """The bytes of a record.

    Raises:
        Unshareable: reading them would give another record.
        TooLarge: it is too long or too deep.
    """
    try:
        data = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
        same = orjson.loads(data) == record
    except (orjson.JSONEncodeError, orjson.JSONDecodeError, RecursionError) as error:
        raise Unshareable(f"A record cannot be written as JSON: {error}") from error
    if not same:
        raise Unshareable("A record changes when JSON writes and reads it.")
    _check_size(data, record, limits)
    return data


def decode(data: bytes, limits: Limits = LIMITS) -> Record:
    """The record that has these bytes, and no other ones.

    Raises:
        Unshareable: they are no record, or not its canonical bytes.
        TooLarge: it is too long or too deep.
    """
    _check_length(data, limits)
    try:
        record = orjson.loads(data)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise Unshareable(f"A record is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise Unshareable(f"A record is a JSON {type(record).__name__}, not an object.")
    _check_depth(data, record, limits)
    if orjson.dumps(record, option=orjson.OPT_SORT_KEYS) != data:
        raise Unshareable("A record is not in its canonical form.")
    return record


def _check_size(data: bytes, record: Record, limits: Limits) -> None:
    _check_length(data, limits)
    _check_depth(data, record, limits)


def _check_length(data: bytes, limits: Limits) -> None:
    if len(data) > limits.record_bytes:
        raise TooLarge(f"A record has {len(data)} bytes; at most {limits.record_bytes} are allowed.")


def _check_depth(data: bytes, record: Record, limits: Limits) -> None:
    if data.count(b"{") + data.count(b"[") <= limits.depth:  # of nearly all records; no deeper than there are brackets
        return
    level: list[Any] = [record]
    for _ in range(limits.depth):
        level = [part for value in level for part in _parts(value) if isinstance(part, dict | list)]
        if not level:
            return
    raise TooLarge(f"A record is nested more than {limits.depth} deep.")


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value
