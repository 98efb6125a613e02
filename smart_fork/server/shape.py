"""What a tool answers as a schema, made from the value that it answers with."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from types import NoneType
from typing import Any, Union, get_args, get_origin, get_type_hints

from typing_extensions import TypedDict

from indexer.values import RARE, SPREAD, Value


def shape(*kinds: type[Value]) -> Any:
    """A TypedDict of the keys of that value, or of whichever of several. None is required: over MCP no key is null."""
    return _shape(kinds)


@cache
def _shape(kinds: tuple[type[Value], ...]) -> Any:
    kind = kinds[0]
    keys: dict[str, Any] = {}
    for one in kinds:
        keys = {**keys, **{name: of for name, of in _keys(one) if name not in keys}}
    described = TypedDict(kind.__name__, keys, total=False)  # type: ignore[misc]
    described.__doc__ = kind.__doc__
    return described


def _keys(kind: type[Value]) -> Iterator[tuple[str, Any]]:
    """The keys that a kind of value is answered with, and the types of what stands there."""
    hints = get_type_hints(kind)
    for one in fields(kind):
        if SPREAD in one.metadata:
            yield from one.metadata[SPREAD].items()
            continue
        of = hints[one.name]
        if RARE in one.metadata and one.default is None:  # then the key is not there
            of = Union[tuple(part for part in get_args(of) if part is not NoneType)]  # noqa: UP007 - of what is left
        yield one.name, _json(of)


def _json(kind: Any) -> Any:
    """The type of the JSON value that a value of this type is answered as."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Value:
        return dict[str, Any]
    if isinstance(kind, type) and issubclass(kind, Value):
        return shape(kind)
    if origin in (Union, types.UnionType):
        if all(isinstance(one, type) and issubclass(one, Value) for one in parts):
            return shape(*parts)
        return Union[tuple(_json(one) for one in parts)]  # noqa: UP007 - of as many as there are
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[str, _json(parts[1])]  # type: ignore[misc]
    if isinstance(origin, type) and issubclass(origin, (tuple, list)):
        return list[_json(parts[0])]  # type: ignore[misc]
    if isinstance(kind, type) and issubclass(kind, str):
        return str
    return getattr(kind, "__supertype__", kind)
