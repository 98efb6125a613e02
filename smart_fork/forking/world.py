"""What workers are started and looked at with: other programs, the environment, the agent's logs, and time."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from indexer.shapes import dataclass
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.model import AgentName
from smart_fork.agents.readers import READERS
from smart_fork.system.processes import Processes


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
class Instruments:
    """What workers are looked at with. Tests may give their own."""

    processes: Processes = field(default_factory=Processes)
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, slots=True, kw_only=True)
class World(Instruments):
    """What a launch works with: the agent's logs as well."""

    adapter: AgentAdapter


def world_of(
    agent: AgentName,
    processes: Processes | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> World:
    """What starting an agent works with: of what is not given, the real one."""
    env = os.environ if env is None else env
    return World(processes or Processes(), env, clock or SystemClock(), adapter=READERS[agent])
