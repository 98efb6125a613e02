"""Cases of one test that need nothing of their own: a home and a report for each take longer than they do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`pytest.mark.parametrize`, but one test tries all cases, and names each that fails.

    For tests that change nothing: the cases share the fixtures.
    """
    known = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    rows = [case if len(known) > 1 else (case,) for case in cases]
    assert rows

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def tried(*own: Any, **fixtures: Any) -> None:
            failures = []
            for row in rows:
                try:
                    test(*own, **fixtures, **dict(zip(known, row, strict=True)))
                except Exception as failure:  # noqa: BLE001 - all that have failed are told
                    failure.add_note(", ".join(f"{name} = {value!r}" for name, value in zip(known, row, strict=True)))
                    failures.append(failure)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(rows)} cases", failures)

        signature = inspect.signature(test)
        tried.__signature__ = signature.replace(  # what is left is for pytest to fill in
            parameters=[one for name, one in signature.parameters.items() if name not in known]
        )
        return tried

    return decorated


def first(
    names: str | tuple[str, ...],
    cases: Iterable[Any],
    *,
    number: int = 1,
    ids: Iterable[str] | Callable[[Any], str] | None = None,
) -> pytest.MarkDecorator:
    """`pytest.mark.parametrize`, of whose cases the first is tried always and the others are thorough: the same way again."""
    if isinstance(names, str) and "," not in names:
        names, cases = (names,), [(case,) for case in cases]
    return pytest.mark.parametrize(names, mostly_first(cases, number), ids=ids)


def mostly_first(cases: Iterable[Any], number: int = 1) -> list[Any]:
    """These cases, all but the first of them thorough, or all but the first `number`."""
    every = [*cases]
    return [*every[:number], *map(_thorough, every[number:])]


def mostly(cases: Iterable[Any], *always: Any) -> list[Any]:
    """These cases, all but `always` thorough.

    Raises:
        ValueError: One of `always` is no case: nothing else would say that it is never tried.
    """
    every = [*cases]
    if unknown := [one for one in always if one not in every]:
        raise ValueError(f"no cases: {unknown}")
    return [case if case in always else _thorough(case) for case in every]


def _thorough(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.thorough)
