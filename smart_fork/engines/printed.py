"""What a program has printed -> the results in it. Pure; whatever is printed, there is an answer or `NotJson`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from smart_fork.errors import ProgramFailed

#: Colours, cursors and progress.
_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
#: Where a list or an object begins that may hold results. A log line's ``[info]`` or ``[1/2]`` is none.
_BEGINNING = re.compile(r'\[\s*\]|\[\s*\{\s*["}]|\{\s*["}]')
_NOTHING = re.compile(r"^\s*No results\b", re.IGNORECASE | re.MULTILINE)
_LOCATIONS = ("path", "file", "source", "document_path")
_TEXTS = ("snippet", "text", "content")
_INSIDE = ("document", "metadata", "meta")
_DECODER = json.JSONDecoder()


class NotJson(ProgramFailed):
    """What was printed holds no results, and does not say that there are none; the message says what it is."""

    code = "not_json"


def without_steering(text: str) -> str:
    """`text` without what steers a terminal."""
    return _STEERING.sub("", text)


def results_in(printed: str) -> list[dict[str, Any]]:
    """The results, whatever was printed around them: a list, ``{"results": […]}``, one object, or one a line.

    Raises:
        NotJson: there are none to be read, such as where the output was cut off.
    """
    text = without_steering(printed).strip()
    if not text:
        return []
    try:
        values = [_DECODER.decode(text)]
    except (ValueError, RecursionError):
        values = _values(text)
    if not values:
        if _NOTHING.search(text):
            return []
        raise NotJson(text[:200])
    lists = [found for value in values if (found := _list_of(value)) is not None]
    if lists:  # what is printed around it may hold small ones
        return [one for one in max(lists, key=len) if isinstance(one, dict)]
    each = [value for value in values if isinstance(value, dict) and location_of(value)]
    if not each:
        raise NotJson(text[:200])
    return each


def location_of(result: dict[str, Any]) -> str:
    """Where the document is, as the program says it; empty where it does not."""
    return _field(result, _LOCATIONS)


def text_of(result: dict[str, Any]) -> str:
    """What the program quotes of the document."""
    return _field(result, _TEXTS)


def _values(text: str) -> list[Any]:
    """The JSON values among other text, outermost ones.

    Raises:
        NotJson: one begins that does not end.
    """
    found, position = [], 0
    while start := _BEGINNING.search(text, position):
        try:
            value, position = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError) as error:
            raise NotJson(text[start.start() :][:200]) from error
        found.append(value)
    return found


def _list_of(value: Any) -> list[Any] | None:
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        return list(value["results"])
    return value if isinstance(value, list) else None


def _field(result: dict[str, Any], names: tuple[str, ...]) -> str:
    return next(_said(result, names), "")


def _said(result: dict[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    inside = [result[name] for name in _INSIDE if isinstance(result.get(name), dict)]
    for place in (result, *inside):
        for name in names:
            if isinstance(place.get(name), str) and place[name].strip():
                yield place[name]
