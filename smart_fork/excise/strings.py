"""Changes the texts in a record, and never what ties records together: ids, signatures, encrypted reasoning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from indexer.masking.parts import together
from smart_fork.cuts.ties import DEPTH, is_tie

_Change = Callable[[str], str]
_ChangeAll = Callable[[list[str]], list[str]]


def mapped(value: Any, change: _Change, lines: _ChangeAll = list, depth: int = 0) -> Any:
    """The same with every text changed, and those that are one text by `lines`. A text that is JSON stays JSON."""
    if isinstance(value, str):
        return _mapped_text(value, change, lines, depth)
    if depth < DEPTH and isinstance(value, dict):
        return {
            key: part if is_tie(key, part) else mapped(part, change, lines, depth + 1) for key, part in value.items()
        }
    if depth < DEPTH and isinstance(value, list):
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
