"""Values share what a frozen dataclass has written for each class; they behave as one."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from indexer.json_values import Value, rare, record, spread, value


@value
class Point(Value):
    x: int
    y: int = 0


@record
class Named(Value):
    name: str
    at: Point = Point(1)
    note: str = rare("")
    more: Any = spread()


def test_fields_are_given_in_their_order_or_by_their_names():
    assert Point(1, 2) == Point(y=2, x=1) == Point(1, y=2)
    assert Point(1) == Point(1, 0)


def test_values_are_compared_hashed_shown_and_replaced_by_their_fields():
    assert Point(1) != Point(2)
    assert {Point(1), Point(1, 0), Point(2)} == {Point(2), Point(1)}
    assert repr(Named(name="a")) == "Named(name='a', at=Point(x=1, y=0), note='', more={})"
    assert replace(Point(1), y=3) == Point(1, 3)


def test_nothing_equals_what_is_of_another_kind():
    @value
    class Other(Value):
        x: int
        y: int = 0

    assert Point(1) != Other(1)


def test_a_value_stays_as_it_is():
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert point.x == 1


@pytest.mark.parametrize("wrong", [{}, {"name": "a", "nmae": "b"}])
def test_a_field_that_lacks_or_is_not_known_is_an_error(wrong):
    with pytest.raises(TypeError):
        Named(**wrong)


def test_more_than_there_are_fields_is_an_error():
    with pytest.raises(TypeError):
        Point(1, 2, 3)  # type: ignore[call-arg]


def test_each_value_has_further_keys_of_its_own():
    one, other = Named(name="a"), Named(name="a")
    one.more["key"] = 1
    assert other.as_json() == {"name": "a", "at": {"x": 1, "y": 0}}
    assert one.as_json() == {"name": "a", "at": {"x": 1, "y": 0}, "key": 1}
