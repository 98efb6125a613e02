"""A record changed in a few places and otherwise spelled as it was, byte for byte.

Agents write what no other program writes the same: integers that are no doubles, half surrogates, escapes, white space.
What was decoded and encoded again would say something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from indexer.transcripts.lines import as_read, is_long
from smart_fork.json_text import items, skip

_WHITE = " \t\r\n"
#: Those that can only stand in a string, where they have to be escaped.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
#: Only where a value ends is asked of it.
_DECODER = json.JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str)


def respelled(source: bytes, record: dict[str, Any]) -> bytes:
    """`record` as one line: what it says like `source`, of which it was decoded, stands there as it stands in that.

    Without a `source` it is a record of our own. Bytes that no agent could read, since they are no text, do not stay.
    """
    objects = as_read(source) if source else []
    if len(objects) == 1:
        raw, before = objects[0]
        raw = source if is_long(source) else raw
        text = raw.decode("utf-8", "surrogateescape").strip(f"{_WHITE}\0\ufeff")
        try:
            return _readable(_value(text, before, record))
        except (ValueError, RecursionError, IndexError):
            pass  # as nobody writes it
    return orjson.dumps(record)


class _Member(NamedTuple):
    """A member of an object, or an item of a list, which has no name; `text` is its value, and what is around it."""

    name: str
    before: str
    text: str
    behind: str


def _readable(text: str) -> bytes:
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8", "replace")


def _value(text: str, before: Any, after: Any) -> str:
    """`after`, as far as possible in the words of `text`, which says `before`."""
    if before == after:
        return text
    if isinstance(before, dict) and isinstance(after, dict):
        return _object(text, before, after)
    if isinstance(before, list) and isinstance(after, list):
        return _list(text, before, after)
    return orjson.dumps(after).decode()


def _object(text: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    members = list(_members(text))
    last = {member.name: number for number, member in enumerate(members)}  # of the same name the last one counts
    parts = [
        f"{member.before}{_value(member.text, before[member.name], after[member.name])}{member.behind}"
        for number, member in enumerate(members)
        if member.name in after and number == last[member.name]
    ]
    parts += [f"{_spelled(name)}:{_spelled(value)}" for name, value in after.items() if name not in last]
    return f"{{{','.join(parts)}}}"


def _list(text: str, before: Sequence[Any], after: Sequence[Any]) -> str:
    """Items that were changed one by one, or of which some were left out or added."""
    there = list(_members(text))
    if len(before) == len(after):
        each = zip(there, before, after, strict=True)
        return f"[{','.join(f'{item.before}{_value(item.text, *values)}{item.behind}' for item, *values in each)}]"
    parts, start = [], 0
    for one in after:
        same = next((i for i in range(start, len(before)) if before[i] == one), None)
        parts.append(_spelled(one) if same is None else there[same].text)
        start = start if same is None else same + 1
    return f"[{','.join(parts)}]"


def _members(text: str) -> Iterator[_Member]:
    """What stands in an object or a list."""
    begin = 1
    for one in items(text, 0, _DECODER.raw_decode):
        name = one.key.encode("utf-8", "replace").decode()  # as it is decoded where it is read
        end = skip(text, one.end)
        yield _Member(name, text[begin : one.value], text[one.value : one.end], text[one.end : end])
        begin = end + 1


def _spelled(value: Any) -> str:
    return orjson.dumps(value).decode()
