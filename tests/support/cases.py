"""Cases of a test: several in one test, or only some of them in each run."""

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


def thorough_except_first(cases: Iterable[Any], number: int = 1) -> list[Any]:
    """Return the cases, for `pytest.mark.parametrize`; those after the first `number` are marked as thorough."""
    every = [*cases]
    return [*every[:number], *map(_thorough, every[number:])]


def thorough_except(cases: Iterable[Any], *always: Any) -> list[Any]:
    """Return the cases, for `pytest.mark.parametrize`; those not in `always` are marked as thorough.

    Raises:
        ValueError: One of `always` is not a case. Otherwise it would silently never be tried.
    """
    every = [*cases]
    if unknown := [one for one in always if one not in every]:
        raise ValueError(f"no cases: {unknown}")
    return [case if case in always else _thorough(case) for case in every]


def _thorough(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.thorough)
