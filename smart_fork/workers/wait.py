"""Waiting until workers are done with what they were asked, stop at a question, or end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smart_fork.errors import Usage
from smart_fork.forking.world import Instruments
from smart_fork.registry.workers import Registry, WorkerRecord
from smart_fork.workers.observation import Seen, WorkerWatch
from smart_fork.workers.roster import described, last_words, require
from smart_fork.workers.state import WorkersWaited, WorkerWaited

#: How soon workers are looked at again: at first and after every change, and at most.
SOON_SECONDS, LATEST_SECONDS = 0.1, 2.0
_SLOWER = 1.4

#: Told of every look: how many are done, of how many, after how many seconds.
Told = Callable[[int, int, float], None]


def wait_workers(
    references: Sequence[str],
    *,
    any_of: bool = False,
    timeout: float | None = None,
    told: Told = lambda _done, _of, _seconds: None,
    around: Instruments | None = None,
) -> WorkersWaited:
    """Wait for all of the workers, or for one of them, for `timeout` seconds at most; with each one's last words.

    Raises:
        Usage: no worker is named, or the time is negative.
        NotFound: there is no such worker.
    """
    if timeout is not None and not timeout >= 0:
        raise Usage(f"timeout must be 0 or more: {timeout}")
    watcher = WorkerWatch(around)
    with Registry() as registry:
        workers = require(references, registry)
        wait = _Wait(workers, registry, watcher)
        done = wait.until(len(workers) if not any_of else 1, timeout, told)
        waited = (
            WorkerWaited.more(
                described(worker, seen), settled=seen.settled, last_words=last_words(worker, seen, watcher)
            )
            for worker, seen in wait.seen.values()
        )
        return WorkersWaited(done=done, workers=tuple(waited))


class _Wait:
    def __init__(self, workers: Sequence[WorkerRecord], registry: Registry, watcher: WorkerWatch) -> None:
        self.registry = registry
        self.watcher = watcher
        self._said: dict[str, str | None] = {}
        self.seen: dict[str, tuple[WorkerRecord, Seen]] = {worker.id: self._look(worker.id) for worker in workers}

    def until(self, enough: int, timeout: float | None, told: Told) -> bool:
        """Whether so many have settled in time."""
        clock = self.watcher.around.clock
        began, pause = clock.now(), SOON_SECONDS
        while True:
            settled = sum(seen.settled for _, seen in self.seen.values())
            passed = clock.now() - began
            told(settled, len(self.seen), passed)
            if settled >= enough:
                return True
            if timeout is not None and passed >= timeout:
                return False
            clock.sleep(pause if timeout is None else min(pause, timeout - passed))
            before, self.seen = self.seen, {identity: self._look(identity) for identity in self.seen}
            pause = SOON_SECONDS if before != self.seen else min(pause * _SLOWER, LATEST_SECONDS)

    def _look(self, identity: str) -> tuple[WorkerRecord, Seen]:
        seen = self.watcher.look(self.registry.get(identity), self.registry)
        return self.registry.get(identity), seen
