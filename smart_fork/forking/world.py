"""What workers are started and looked at with: other programs, the environment, the agent's logs, and time."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Protocol

from indexer.shapes import dataclass
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.model import AgentName
from smart_fork.agents import READERS
from smart_fork.system.processes import Processes, SystemProcesses


class Clock(Protocol):
    """Time, for whoever waits."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The real one."""

    def now(self) -> float:
        """See `Clock.now`."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class World:
    """What a launch works with. Tests may give their own."""

    processes: Processes
    env: Mapping[str, str]
    adapter: AgentAdapter
    clock: Clock


def world_of(
    agent: AgentName,
    processes: Processes | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    adapter: AgentAdapter | None = None,
) -> World:
    """What starting an agent works with: of what is not given, the real one."""
    return World(
        processes or SystemProcesses(),
        os.environ if env is None else env,
        adapter or READERS[agent],
        clock or SystemClock(),
    )
