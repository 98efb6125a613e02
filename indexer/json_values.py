"""Base classes of values that smart-fork answers as JSON, and functions that read unchecked JSON.

The fields of a `Value`, a frozen dataclass, are the keys of the JSON object. The functions that read JSON treat a value
of an unexpected type as empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar, dataclass_transform

import orjson

from indexer.lazy_compilation import dataclass

#: Keys in the metadata of a dataclass's fields.
RARE, SPREAD = "rare", "spread"


def rare(default: Any = None) -> Any:
    """Return a dataclass field that `Value.as_json` leaves out while its value is the default."""
    return field(default=default, metadata={RARE: True})


def spread(**keys: Any) -> Any:
    """Return a dataclass field for a mapping. `Value.as_json` puts its keys (of the types `keys`) in place of it."""
    return field(default_factory=dict, metadata={SPREAD: keys})


class Value:
    """The base class of values that smart-fork answers as JSON, by `as_json`."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object. Later versions of smart-fork may add keys, but never rename keys."""
        told: dict[str, Any] = {}
        for one in fields(self):
            said = getattr(self, one.name)
            if SPREAD in one.metadata:
                told |= said
            elif RARE not in one.metadata or said != one.default:
                told[one.name] = json_of(said)
        return told


def json_of(value: Any) -> Any:
    """Return `value` as JSON: each `Value` in it, at any depth, becomes an object."""
    if isinstance(value, Value):
        return value.as_json()
    if isinstance(value, Mapping):
        return {key: json_of(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_of(one) for one in value]
    return value


V = TypeVar("V", bound=Value)


@dataclass_transform(frozen_default=True)
def value(kind: type[V]) -> type[V]:
    """Make the class `kind` a frozen dataclass, for values with few fields."""
    made: type[V] = dataclass(frozen=True)(kind)
    return made


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(kind: type[V]) -> type[V]:
    """Make the class `kind` a frozen dataclass, for values with many fields, which must be given by name."""
    made: type[V] = dataclass(frozen=True, kw_only=True)(kind)
    return made


def dict_in(value: object) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_in(value: object) -> list[Any]:
    """Return `value` if it is a JSON list, else an empty one."""
    return value if isinstance(value, list) else []


def dicts_in(value: object) -> list[dict[str, Any]]:
    """Return the JSON objects in `value` if it is a list, else an empty list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_in(value: object) -> str:
    """Return `value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def json_in(text: bytes | str) -> Any:
    """Return the value of a JSON text, or `None` if it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def json_at(path: Path) -> Any:
    """Return the value in the JSON file at `path`; `None` if the file is missing, unreadable or not JSON."""
    try:
        return json_in(path.read_bytes()) if path.is_file() else None
    except OSError:
        return None


def seconds_in(moment: str) -> float | None:
    """Return a time in ISO 8601 as seconds since 1970, or `None` if it is not a time."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
