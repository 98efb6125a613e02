"""Values that are answered as JSON: a dataclass is the shape, its fields in their order are the keys.

Each command waits until the classes of its answers are made, and most of that time a dataclass compiles methods. Here
all values share theirs, and are frozen as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

#: What the fields of a value know of themselves.
RARE, SPREAD = "rare", "spread"


def rare(default: Any = None) -> Any:
    """A field whose key is left out where it has nothing to say: where its value is the default."""
    return field(default=default, metadata={RARE: True})


def spread(**keys: Any) -> Any:
    """A field of further keys, which stand in its place. `keys` are the types of those that are known."""
    return field(default_factory=dict, metadata={SPREAD: keys})


class Value:
    """What all of them can: ``value.as_json()``, and what a frozen dataclass can."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init__(self, *given: Any, **named: Any) -> None:
        """Takes its fields, in their order or by their names."""
        said = dict(zip(self.__dataclass_fields__, given, strict=False)) | named
        for name, one in self.__dataclass_fields__.items():
            made = one.default if one.default_factory is MISSING else one.default_factory()
            object.__setattr__(self, name, said.pop(name, made))
        lacking = [name for name in self.__dataclass_fields__ if getattr(self, name) is MISSING]
        if said or lacking or len(given) > len(self.__dataclass_fields__):
            raise TypeError(f"{type(self).__qualname__} lacks {lacking} and has no {[*said] or given}")

    def __setattr__(self, name: str, value: object) -> None:
        """Refuses: what has been answered stays as it is."""
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        """Refuses."""
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        """Whether it is of the same kind, and the same in all fields."""
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        """Of all fields."""
        return hash(self._values())

    def __repr__(self) -> str:
        """How it is made."""
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__qualname__}({said})"

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

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
    return dataclass(init=False, eq=False, repr=False)(kind)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(kind: type[V]) -> type[V]:
    """Makes a class of values with many fields, which are given by their names."""
    return value(kind)
