"""What a client that asks for it is told of a call that takes long: numbers that only grow, and words."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import anyio
import anyio.from_thread
from mcp.server.mcpserver import Context

from smart_fork.system.stages import Stage, named

#: Seconds between two notifications, and how long one is silent at most: clients end calls that say nothing.
PROGRESS_SECONDS, BEAT_SECONDS = 0.25, 5.0
#: By how much a number grows where nothing more is done than time has passed.
STEP = 0.001
Progress = Callable[[str, int, int], None]
Send = Callable[[float, float, str], Awaitable[None]]
T = TypeVar("T")


class Reporter:
    """Tells the client of one call, by `send`, how far it is. Only the event loop's thread uses it."""

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._send, self._clock = send, clock
        self._stage: Stage | None = None
        self._done: dict[str, int] = {}
        self._began = self._told_at = clock()
        self._number = self._total = 0.0
        self._words = ""

    async def tell(self, stage: str, done: int, total: int) -> None:
        """So much of a stage is done: with what was done of the others before, it is a part of the whole."""
        if total == 0:
            return
        now = self._clock()
        current = self._stage
        begins = current is None or current.name != stage
        if current is None or begins:
            current = self._stage = Stage(stage, now, done, done, total)
        grown = begins or done > current.done
        current.done, current.total = done, total
        self._done[stage] = max(done, self._done.get(stage, 0))
        if grown and (begins or done >= total or now - self._told_at >= PROGRESS_SECONDS):
            whole = sum(self._done.values())
            self._words = ""
            await self._say(whole, whole - self._done[stage] + max(total, self._done[stage]))

    async def say(self, number: float, total: float, words: str) -> None:
        """So far it is, in these words."""
        self._words = words
        await self._say(number, total)

    async def beat(self) -> None:
        """Say again what is done where nothing has been said for long."""
        while True:
            await anyio.sleep(max(0.0, self._told_at + BEAT_SECONDS - self._clock()))
            if self._clock() - self._told_at >= BEAT_SECONDS:
                await self._say(self._number, self._total)

    async def _say(self, number: float, total: float) -> None:
        self._told_at = now = self._clock()
        if number <= self._number:
            number = self._number + STEP
        self._number, self._total = number, max(total, number)
        await self._send(self._number, self._total, self._words or self._in_words(now))

    def _in_words(self, now: float) -> str:
        stage = self._stage or Stage("working", self._began, 0, 0, 1)
        return f"{named(stage.name)}: {stage.share(now)}"


_reporter: ContextVar[Reporter | None] = ContextVar("reporter", default=None)


async def reported(context: Context[Any, Any], work: Awaitable[T]) -> T:
    """What comes of `work`, while the client is told of it."""
    reporter = Reporter(context.report_progress)
    before = _reporter.set(reporter)
    failed: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reporter.beat)
            try:
                result = await work
            except Exception as error:  # noqa: BLE001 - raised below: the group would hide it in one of its own
                failed = error
            tasks.cancel_scope.cancel()
    finally:
        _reporter.reset(before)
    if failed is not None:
        raise failed
    return result


def reporter() -> Reporter:
    """That of the call which this is part of.

    Raises:
        LookupError: it is part of none.
    """
    found = _reporter.get()
    if found is None:
        raise LookupError("no call is being answered")
    return found


def progress_of() -> Progress:
    """A callback for the working thread of a call."""
    told = reporter()

    def report(stage: str, done: int, total: int) -> None:
        anyio.from_thread.run(told.tell, stage, done, total)

    return report
