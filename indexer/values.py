"""Values that are answered as JSON: a frozen dataclass is the shape, its fields in their order are the keys.

And values of decoded JSON that nobody has checked: one of another type counts as an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar, dataclass_transform

import orjson

from indexer.lazy import dataclass

#: What the fields of a value know of themselves.
RARE, SPREAD = "rare", "spread"


def rare(default: Any = None) -> Any:
    """A field whose key is left out where it has nothing to say: where its value is the default."""
    return field(default=default, metadata={RARE: True})


def spread(**keys: Any) -> Any:
    """A field of further keys, which stand in its place. `keys` are the types of those that are known."""
    return field(default_factory=dict, metadata={SPREAD: keys})


class Value:
    """Base of values: ``value.as_json()``."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def as_json(self) -> dict[str, Any]:
        """JSON values, for whoever is answered. Keys are added, never renamed."""
        told: dict[str, Any] = {}
        for one in fields(self):
            said = getattr(self, one.name)
            if SPREAD in one.metadata:
                told |= said
            elif RARE not in one.metadata or said != one.default:
                told[one.name] = json_of(said)
        return told


def json_of(value: Any) -> Any:
    """`value` with all values in it as JSON."""
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
    """Makes a class of values."""
    made: type[V] = dataclass(frozen=True)(kind)
    return made


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(kind: type[V]) -> type[V]:
    """Makes a class of values with many fields, which are given by their names."""
    made: type[V] = dataclass(frozen=True, kw_only=True)(kind)
    return made


def dict_in(value: object) -> dict[str, Any]:
    """Return an object; an empty one for all else."""
    return value if isinstance(value, dict) else {}


def list_in(value: object) -> list[Any]:
    """Return a list; an empty one for all else."""
    return value if isinstance(value, list) else []


def dicts_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; nothing if it is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_in(value: object) -> str:
    """Return a text; an empty one for all else."""
    return value if isinstance(value, str) else ""


def json_in(text: bytes | str) -> Any:
    """Decode JSON; `None` if it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def json_at(path: Path) -> Any:
    """Decode the JSON in a file; `None` if it cannot be read, or is not JSON. A pipe is not waited for."""
    try:
        return json_in(path.read_bytes()) if path.is_file() else None
    except OSError:
        return None


def seconds_in(moment: str) -> float | None:
    """Return a moment in ISO 8601 as seconds since 1970; `None` if it is not one."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
