"""The texts in a record, and never what ties records together: ids, signatures, encrypted reasoning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from indexer.masking.parts import together
from smart_fork.cuts.ties import is_tie

_Change = Callable[[str], str]
_ChangeAll = Callable[[list[str]], list[str]]
#: Deeper than any record is.
_DEPTH = 64


def texts(value: object, depth: int = 0) -> Iterator[str]:
    """Every text in a decoded record."""
    if isinstance(value, str):
        yield value
    elif depth < _DEPTH and isinstance(value, dict):
        for key, part in value.items():
            if not is_tie(key, part):
                yield from texts(part, depth + 1)
    elif depth < _DEPTH and isinstance(value, list):
        for part in value:
            yield from texts(part, depth + 1)


def mapped(value: Any, change: _Change, lines: _ChangeAll = list, depth: int = 0) -> Any:
    """The same with every text changed, and those that are one text by `lines`. A text that is JSON stays JSON."""
    if isinstance(value, str):
        return _mapped_text(value, change, lines, depth)
    if depth < _DEPTH and isinstance(value, dict):
        return {
            key: part if is_tie(key, part) else mapped(part, change, lines, depth + 1) for key, part in value.items()
        }
    if depth < _DEPTH and isinstance(value, list):
        return [mapped(part, change, lines, depth + 1) for part in together(value, lines, is_tie)]
    return value


def _mapped_text(value: str, change: Callable[[str], str], lines: Callable[[list[str]], list[str]], depth: int) -> str:
    new = change(value)
    if new == value or not value.startswith(("{", "[")):
        return new
    try:
        inner = orjson.loads(value)
    except orjson.JSONDecodeError:
        return new
    return orjson.dumps(mapped(inner, change, lines, depth + 1)).decode()
