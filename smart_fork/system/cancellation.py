"""A cancelled call begins nothing that cannot be taken back, and waits no longer.

A context variable has its event, and goes with a request into its threads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from threading import Event
from typing import TypeVar

from smart_fork.errors import ForkRefused

T = TypeVar("T")

#: Outside of a call nothing sets it.
_NEVER = Event()
_given_up: ContextVar[Event] = ContextVar("given_up", default=_NEVER)


class Cancelled(ForkRefused):
    """The caller has cancelled the call."""

    code = "cancelled"


def cancellable(given_up: Event, work: Callable[[], T]) -> T:
    """Do `work`. Setting `given_up` cancels it."""
    _given_up.set(given_up)
    return work()


def refuse_cancelled(seconds: float = 0.0) -> None:
    """Wait for `seconds`; refuse to go beyond, for example to what cannot be taken back, in a cancelled call.

    Raises:
        Cancelled: the call was cancelled.
    """
    if _given_up.get().wait(seconds):
        raise Cancelled("The call was cancelled, so nothing was started or changed")
