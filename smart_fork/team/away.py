"""A server that may be away: what is asked of it is waited for no longer than a moment, and once in a while.

That it did not answer is kept, so that other processes do not wait for it either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import httpx2

from indexer import state
from smart_fork.errors import ServerUnavailable, SmartForkError
from smart_fork.team.client import Client
from smart_fork.team.login import Account

#: A server that does not answer costs so long, and is asked again after so long.
SECONDS, AWAY_SECONDS = 1.5, 30.0
SILENT = f"The team server did not answer within {SECONDS:g} seconds."
AGAIN = f"The team server did not answer. smart-fork asks again after {AWAY_SECONDS:g} seconds."

T = TypeVar("T")


def is_away(origin: str) -> bool:
    """Whether a server did not answer a moment ago: then nobody waits for it again."""
    try:
        return 0 <= time.time() - (state.fact(f"away {origin}") or 0) < AWAY_SECONDS
    except OSError:
        return False


def note_away(origin: str) -> None:
    """Let others know for a while that it does not answer, where that can be written down."""
    with suppress(OSError):
        state.keep(f"away {origin}", time.time())


def quick(account: Account) -> Client:
    """What is asked of a server once, and without patience."""
    return Client(account, times=httpx2.Timeout(SECONDS), pauses=())


class Waiting:
    """Something that is asked in a thread from now on, and costs whoever comes to need it so many seconds at most."""

    def __init__(self, work: Callable[[], None], name: str, seconds: float | None = None) -> None:
        self._seconds = SECONDS if seconds is None else seconds
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def is_over(self) -> bool:
        """Wait for it, no longer than so; whether it was answered."""
        self._thread.join(self._seconds)
        return not self._thread.is_alive()


def within(account: Account, work: Callable[[Client], T], name: str) -> T:
    """Ask a server something, and wait for it no longer than a moment.

    Raises:
        ServerUnavailable: it has not answered.
        SmartForkError: what it has answered with.
    """
    answered: list[T | SmartForkError] = []

    def ask() -> None:
        try:
            with quick(account) as client:
                answered.append(work(client))
        except SmartForkError as error:
            answered.append(error)

    silent = ServerUnavailable(SILENT, "Is it running, and is the address right?")
    if is_away(account.origin):
        raise silent
    in_time = Waiting(ask, name).is_over() and answered
    if not in_time or isinstance(answered[0], ServerUnavailable):
        note_away(account.origin)
        raise silent
    if isinstance(answered[0], SmartForkError):
        raise answered[0]
    return answered[0]
