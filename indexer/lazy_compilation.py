"""Regular expressions and dataclasses that are compiled on first use, not when their module is imported.

The ``dataclass`` of the standard library compiles up to eight methods of each class, a third of a command's time. The
``dataclass`` here has equal fields, slots and behavior, but compiles the ``__init__`` of a class when its first object
is created, and shares the other methods between classes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any


class _Pattern:
    """A regular expression that is compiled on first use. It then takes over the methods of the compiled pattern."""

    def __init__(self, pattern: Any, flags: int = 0) -> None:
        self._given = (pattern, flags)
        _patterns.append(self)

    def __getattr__(self, name: str) -> object:
        value = getattr(re.compile(*self._given), name)
        setattr(self, name, value)
        return value


_patterns: list[_Pattern] = []

if TYPE_CHECKING:
    late = re.compile  # what type checkers know
else:
    #: Makes the regular expression of `re.compile`, compiled on first use. A wrong one fails only then, so a test uses
    #: each.
    late = _Pattern


_FACTORY = object()
_classes: list[type[Any]] = []


def _dataclass(
    kind: type[Any] | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True, **how: bool
) -> Any:
    """Make `kind` a dataclass like `dataclasses.dataclass`, but compile its ``__init__`` on first use if possible."""
    if kind is not None or how.keys() - {"kw_only"}:
        return dataclasses.dataclass(kind, frozen=frozen, slots=slots, eq=eq, **how)

    def made(kind: type[Any]) -> type[Any]:
        own = set(vars(kind))
        kind = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, **how)(kind)
        fields = dataclasses.fields(kind)

        def init(self: object, *given: Any, **named: Any) -> None:
            _compile_init(kind)(self, *given, **named)

        methods: dict[str, Any] = {"__init__": init, "__repr__": _repr}
        if eq:
            names = [one.name for one in fields if one.compare]
            values: Callable[[Any], tuple[Any, ...]] = (
                attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)
            )

            def equal(self: object, other: object) -> Any:
                return values(self) == values(other) if self.__class__ is other.__class__ else NotImplemented

            methods |= {"__eq__": equal, "__hash__": (lambda self: hash(values(self))) if frozen else None}
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in methods.items():
            if name not in own:
                setattr(kind, name, method)
        if "__init__" not in own:
            _classes.append(kind)
        return kind

    return made


def compile_all() -> None:
    """Compile the regular expressions and dataclasses of all imported modules, in a process that waits for work."""
    for kind in _classes:
        _compile_init(kind)
    for one in _patterns:
        for name in ("search", "match", "fullmatch", "finditer", "findall", "sub", "split"):
            getattr(one, name)


def _compile_init(kind: type[Any]) -> Callable[..., None]:
    compiled = _compiled_init(kind)
    setattr(kind, "__init__", compiled)  # noqa: B010 - which a type checker does not know to be one
    return compiled


def _compiled_init(kind: type[Any]) -> Callable[..., None]:
    known: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _FACTORY}
    given, named, lines = ["self"], ["*"], []
    for place, one in enumerate(dataclasses.fields(kind)):
        default, value = f"_default{place}", one.name
        if made := one.default_factory is not dataclasses.MISSING:
            known[default] = one.default_factory
            value = f"{default}() if {one.name} is _FACTORY else {one.name}" if one.init else f"{default}()"
        elif one.default is not dataclasses.MISSING:
            known[default] = one.default
            value = one.name if one.init else default
        if one.init:
            otherwise = "=_FACTORY" if made else f"={default}" if default in known else ""
            (named if one.kw_only else given).append(one.name + otherwise)
        if one.init or default in known:
            lines.append(f"    _set(self, {one.name!r}, {value})")
    lines += ["    self.__post_init__()"] if hasattr(kind, "__post_init__") else []
    words = ", ".join(given + (named if len(named) > 1 else []))
    exec("\n".join([f"def init({words}):", *lines, "    return"]), known)  # noqa: S102 - as dataclasses do
    init: Callable[..., None] = known["init"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    return init


def _repr(self: Any) -> str:
    said = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({said})"


def _refuse_to_set(self: object, name: str, value: object) -> None:  # noqa: ARG001
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:  # noqa: ARG001
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: Iterable[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - what type checkers know
else:
    dataclass = _dataclass
