"""Whether the call that this is part of was cancelled: what cannot be taken back is then not begun.

Held in a context variable, which goes with a request into its threads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from threading import Event
from typing import TypeVar

from smart_fork.errors import ForkRefused

T = TypeVar("T")

_given_up: ContextVar[Event | None] = ContextVar("given_up", default=None)


class Cancelled(ForkRefused):
    """Whoever asked for it has cancelled the call."""

    code = "cancelled"


def cancellable(given_up: Event, work: Callable[[], T]) -> T:
    """Do `work`, which is cancelled when `given_up` is set."""
    _given_up.set(given_up)
    return work()


def refuse_cancelled() -> None:
    """Refuse to begin what could not be taken back.

    Raises:
        Cancelled: the call was cancelled.
    """
    given_up = _given_up.get()
    if given_up is not None and given_up.is_set():
        raise Cancelled("The call was cancelled, so nothing was started or changed")
