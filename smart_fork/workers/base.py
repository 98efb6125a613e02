"""What every place to run offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from indexer.paths import private_dir, state_home
from smart_fork.plan import ForkPlan
from smart_fork.processes import Processes
from smart_fork.registry import Worker


@dataclass(frozen=True, slots=True)
class Started:
    """Where a worker runs now. `attach` is what a person types to see it."""

    terminal_id: str | None = None
    pid: int | None = None
    log: Path | None = None
    attach: str = ""


class Place(Protocol):
    """A place to run. It gives the agent the plan's arguments as they are; no shell sees them."""

    @property
    def name(self) -> str:
        """What a person calls it."""
        ...

    @property
    def headless(self) -> bool:
        """Whether the agent runs without a terminal there."""
        ...

    @property
    def replaces(self) -> bool:
        """Whether starting ends this program."""
        ...

    def available(self, processes: Processes, env: Mapping[str, str]) -> bool:
        """Whether it can be used on this machine."""
        ...

    def start(self, plan: ForkPlan, worker: Worker, processes: Processes, env: Mapping[str, str]) -> Started:
        """Start the plan's command, with exactly `env` as far as the place allows.

        Raises:
            SmartForkError: it could not be started.
        """
        ...

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str | None:
        """`None` while it runs; then what it said last."""
        ...


def worker_file(worker: Worker, suffix: str) -> Path:
    """A file of this worker, below ``<SMART_FORK_HOME>/logs/workers``."""
    return private_dir(state_home() / "logs" / "workers") / f"{worker.id}{suffix}"
