"""Editing JSON text in place: all bytes that are not edited stay, with their order, indentation and spelling.

The text is a settings file or a line of a log. Settings must be strict JSON, because programs disagree about duplicate
names and comments. A log's unchanged values are not decoded and encoded, because programs write some differently:
integers beyond a double, half surrogate pairs, escapes, white space.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from indexer.lazy_compilation import dataclass
from indexer.transcripts.lines import as_read, is_long

_SPACE = re.compile(r"[ \t\r\n]*")
Decode = Callable[[str, int], tuple[Any, int]]
_decode: Decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class JsonItem:
    """The position of an object's member, or of an array's element, in a JSON text.

    It begins at `start`, and its value reaches from `value` to `end`. An element's `key` is empty.
    """

    key: str
    start: int
    value: int
    end: int


def read_object(text: str) -> dict[str, Any]:
    """Parse `text` as a JSON object.

    Raises:
        ValueError: `text` is not strict JSON, is not an object, or contains a name twice.
    """
    decoded: object = json.loads(text, object_pairs_hook=_once)
    if not isinstance(decoded, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - whoever reads a file catches this
    return decoded


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is in it twice")
    return found


def items(text: str, at: int, decode: Decode = _decode) -> list[JsonItem]:
    """Find the members of the object, or the elements of the array, that begins at position `at`."""
    named = text[at] == "{"
    found: list[JsonItem] = []
    at = skip(text, at + 1)
    while text[at] not in "]}":
        start, key = at, ""
        if named:
            key, at = decode(text, at)
            at = skip(text, skip(text, at) + 1)
        _, end = decode(text, at)
        found.append(JsonItem(key, start, at, end))
        at = skip(text, end)
        if text[at] == ",":
            at = skip(text, at + 1)
    return found


def root(text: str) -> int:
    """Return the position at which the JSON value of `text` begins."""
    return skip(text, 0)


def interior(text: str, at: int) -> str:
    """Return the white space inside the empty object or array that begins at position `at`."""
    return text[at + 1 : skip(text, at + 1)]


def member(text: str, at: int, key: str) -> JsonItem | None:
    """Find the member `key` of the object at position `at`; `None` without it, or without an object."""
    return next((item for item in items(text, at) if item.key == key), None) if text[at] == "{" else None


def append(text: str, at: int, value: Any, key: str | None = None) -> str:
    """Return `text` with `value` (as member `key`) added to the object or array at `at`, formatted as its siblings."""
    inside = items(text, at)
    unit, outer = _unit(text), _indentation(text, at)
    if inside:
        before = text[at + 1 : inside[0].start]
        separator = before if "\n" in before else " "
        written = _written(value, key, separator.rpartition("\n")[2] if "\n" in separator else None, unit)
        return f"{text[: inside[-1].end]},{separator}{written}{text[inside[-1].end :]}"
    gap = interior(text, at)
    if unit is None:
        return f"{text[: at + 1]}{_written(value, key, None, None)}{text[at + 1 :]}"
    rest = "" if "\n" in gap else f"\n{outer}"
    written = _written(value, key, outer + unit, unit)
    return f"{text[: at + 1]}\n{outer}{unit}{written}{rest}{text[at + 1 :]}"


def replace(text: str, item: JsonItem, value: Any) -> str:
    """Replace the value of the member or element `item`, and return the new text."""
    before = text[: item.start].rpartition("\n")
    lined = before[1] and not before[2].strip()
    written = _written(value, None, before[2] if lined else None, _unit(text))
    return f"{text[: item.value]}{written}{text[item.end :]}"


def remove(text: str, at: int, item: JsonItem, empty: str = "") -> str:
    """Return `text` without `item` of the object or array at `at`, which gets the white space `empty` if left empty."""
    inside = items(text, at)
    index = inside.index(item)
    if index:
        return text[: inside[index - 1].end] + text[item.end :]
    if len(inside) > 1:
        return text[: item.start] + text[inside[1].start :]
    return text[: at + 1] + empty + text[skip(text, item.end) :]


Way = tuple[str, ...]


def insert(text: str, way: Way, value: Any, key: str | None = None) -> str:
    """Return `text` with `value` (as member `key`) at the end of the object or array at the path `way`.

    The path has a member name for each level. Missing objects and arrays on it are created.
    """
    at = root(text)
    for depth, name in enumerate(way):
        found = member(text, at, name)
        if found is None:
            made = [value] if key is None else {key: value}
            for inner in reversed(way[depth + 1 :]):
                made = {inner: made}
            return append(text, at, made, name)
        at = found.value
    return append(text, at, value, key)


def empty_on(text: str, way: Way) -> dict[Way, str]:
    """Return {path: white space} of the deepest existing object or array on the path `way`, if it is empty; else {}.

    With it, `withdraw` restores the text as it was before an `insert`.
    """
    at, depth = root(text), 0
    while depth < len(way) and (found := member(text, at, way[depth])):
        at, depth = found.value, depth + 1
    return {} if items(text, at) else {way[:depth]: interior(text, at)}


def withdraw(text: str, way: Way, item: JsonItem, empty: Mapping[Way, str]) -> str:
    """Undo an `insert`: return `text` without `item` of the object or array at `way`, and without emptied containers.

    Those in `empty` (they were empty before the `insert`) stay, with their white space.
    """
    ways = [root(text)]
    for name in way:
        found = member(text, ways[-1], name)
        if found is None:
            raise ValueError(f"there is no {name}")
        ways.append(found.value)
    text = remove(text, ways[-1], item, empty.get(way, ""))
    for depth in range(len(way), 0, -1):
        inner = member(text, ways[depth - 1], way[depth - 1])
        if inner is None or way[:depth] in empty or items(text, inner.value):
            return text
        text = remove(text, ways[depth - 1], inner, empty.get(way[: depth - 1], ""))
    return text


def _written(value: Any, key: str | None, indentation: str | None, unit: str | None) -> str:
    """Write `value` as JSON text, with `key` as its name if given.

    With `indentation` and `unit`, the text has several lines: those after the first start with `indentation`, and
    deeper levels add `unit`.
    """
    lined = indentation is not None and unit is not None
    text = json.dumps(value, ensure_ascii=False, indent=unit if lined else None)
    if lined:
        text = text.replace("\n", f"\n{indentation}")  # a string has no bare newline in it
    return text if key is None else f"{json.dumps(key, ensure_ascii=False)}: {text}"


def _unit(text: str) -> str | None:
    """Return the white space of one indentation step, by default two spaces; `None` for a text of one line."""
    first = re.match(r"\s*[\[{]\s*?\n([ \t]*)", text)
    if first:
        return first[1] or "  "
    return "  " if not items(text, root(text)) else None


def _indentation(text: str, at: int) -> str:
    line = text[: at + 1].rpartition("\n")[2]
    return line[: len(line) - len(line.lstrip(" \t"))]


def skip(text: str, at: int) -> int:
    """Return the position of the first character from `at` on that is not white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


_WHITE = " \t\r\n"
#: Control characters that may only be in a string, and must be escaped there.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
#: A decoder that is only used to find the end of a value.
_DECODER = json.JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str)


def respelled(source: bytes, record: dict[str, Any]) -> bytes:
    """Write a changed log `record` as one line of JSON, with the spelling of unchanged values in `source`.

    `source` is the record's line before the change. Bytes in it that are no text are replaced.
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
    """A member of an object, or an element (without a `name`) of an array, as it is written in a JSON text.

    Its value is written as `text`, after the text `before` (such as its name), and followed by white space `behind`.
    """

    name: str
    before: str
    text: str
    behind: str


def _readable(text: str) -> bytes:
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8", "replace")


def _value(text: str, before: Any, after: Any) -> str:
    """Write the value `after` as JSON. Parts that are equal in the value `before` keep their spelling in its `text`."""
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
    """Write the array `after` as JSON. Elements that the array `before` has, too, keep their spelling in its `text`."""
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
    """Yield the members of an object, or the elements of an array, of the JSON text `text`."""
    begin = 1
    for one in items(text, 0, _DECODER.raw_decode):
        name = one.key.encode("utf-8", "replace").decode()  # as it is decoded where it is read
        end = skip(text, one.end)
        yield _Member(name, text[begin : one.value], text[one.value : one.end], text[one.end : end])
        begin = end + 1


def _spelled(value: Any) -> str:
    return orjson.dumps(value).decode()
