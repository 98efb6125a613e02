"""Smaller limits than the real ones, for as long as a test needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from smart_fork.sharing.canonical import LIMITS


@contextmanager
def limited(**values: float) -> Iterator[None]:
    """Let these limits hold in this process."""
    before = {name: getattr(LIMITS, name) for name in values}
    try:
        for name, value in values.items():
            object.__setattr__(LIMITS, name, value)
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(LIMITS, name, value)
