"""A dataclass that is compiled on first use behaves like a dataclass."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import pytest

from indexer.lazy_compilation import dataclass as late


def everything(dataclass: Any) -> tuple[Any, ...]:
    """Return equal classes, made by one of the two decorators."""

    @dataclass(frozen=True, slots=True)
    class Plain:
        """Of everything."""

        name: str
        number: int = 3
        many: list[int] = field(default_factory=list)
        unseen: str = field(default="", repr=False, compare=False)
        own: int = field(default=7, init=False)
        last: str = field(default="", kw_only=True)

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("too small")

    @dataclass(frozen=True, slots=True)
    class Longer(Plain):
        """With one more."""

        more: tuple[int, ...] = ()

        def __repr__(self) -> str:
            return f"<{self.name}>"

    @dataclass(slots=True)
    class Open:
        """One that is written to."""

        count: int = 0

    @dataclass(slots=True, eq=False)
    class Itself:
        """Equal to nothing else."""

        count: int = 0

    @dataclass(frozen=True, slots=True)
    class Nothing:
        """Without a field."""

    return Plain, Longer, Open, Itself, Nothing


def told(kinds: tuple[Any, ...]) -> list[Any]:
    """What can be seen of them."""
    plain, longer, written, itself, nothing = kinds
    one, other = plain("a", many=[1], last="z"), longer("b", 4, more=(1, 2))
    seen: list[Any] = [repr(one), repr(other), repr(written(2)), repr(nothing())]
    seen += [one == plain("a", 3, [1], "unseen", last="z"), one == plain("a"), one == other, one.many is one.many]
    seen += [written(1) == written(1), itself(1) == itself(1), nothing() == nothing(), plain("a") == longer("a")]
    seen += [plain("a").many is plain("a").many, hash(nothing()) == hash(nothing())]
    seen += [dataclasses.asdict(one), dataclasses.astuple(other), replace(other, name="c", many=[2]).many]
    seen += [copy.copy(one) == one, copy.deepcopy(other) == other, [name.name for name in dataclasses.fields(other)]]
    for refused in (
        lambda: setattr(one, "name", "b"), lambda: delattr(one, "name"),
        plain, lambda: plain("a", 1, [], "", "z"), lambda: plain("a", own=1), lambda: plain("a", other=1),
        lambda: plain("a", -1), lambda: hash(written()), lambda: hash(one), lambda: setattr(written(), "x", 1),
    ):  # fmt: skip
        try:
            refused()
            seen.append("done")
        except (AttributeError, TypeError, ValueError) as error:
            seen.append((type(error), str(error).replace("init()", "__init__()").rpartition(".")[2]))
    changed = written()
    changed.count = 5
    return [*seen, changed.count, one.own, longer.__match_args__, longer.__slots__]


def test_it_is_one_like_those_of_the_standard_library():
    assert told(everything(dataclasses.dataclass)) == told(everything(late))


def test_the_first_object_is_made_as_the_later_ones_are():
    for given in (("a",), ("b", 1)):
        plain = everything(late)[0]

        assert [plain(*given), plain(*given)] == [plain(*given)] * 2


def test_a_class_compiles_nothing_before_it_is_used(monkeypatch):
    compiled = []
    builder = getattr(dataclasses, "_FuncBuilder", None)  # the standard library's way since Python 3.13, and before
    whose, name = (builder, "add_fn") if builder else (dataclasses, "_create_fn")
    monkeypatch.setattr(whose, name, lambda *a, **k: compiled.append(a))
    plain = everything(late)[0]

    assert [] == compiled
    assert "a" == plain("a").name


@late(frozen=True, slots=True)
class Kept:
    """One that another process is given."""

    name: str
    number: int = 0


def test_another_process_is_given_it():
    assert Kept("a", 2) == pickle.loads(pickle.dumps(Kept("a", 2)))  # noqa: S301 - our own
    with pytest.raises(FrozenInstanceError):
        pickle.loads(pickle.dumps(Kept("a"))).number = 1  # noqa: S301


def test_one_without_slots_or_with_an_order_is_the_standard_library_s():
    @late(frozen=True, slots=True, order=True)
    class Ordered:
        """In an order."""

        number: int

    @late
    class Open:
        """With a dictionary of its own."""

        number: int = 1

    assert Ordered(1) < Ordered(2)
    assert Open(1) == Open()
