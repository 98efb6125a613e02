"""The terminal that the command was typed in: the agent takes the place of smart-fork."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping

from indexer.masking import Masked, mask
from smart_fork.agents.plan import ForkPlan
from smart_fork.agents.starter import Delivery
from smart_fork.errors import ForkRefused
from smart_fork.system.processes import Processes
from smart_fork.workers.place import Started, WorkerPlace, runs
from smart_fork.workers.registry import WorkerRecord


class HerePlace(WorkerPlace):
    """Becomes the agent. It is a person's terminal: what happens there is that person's to do."""

    name = "here"
    delivers = frozenset[Delivery]({"argument"})
    replaces = True

    def start(self, plan: ForkPlan, worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> Started:
        """See `WorkerPlace.start`. Does not return."""
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # what stderr has not taken is lost, and the agent starts
            sys.stderr.flush()
        processes.replace(plan.argv, cwd=plan.cwd, env=env)

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> Masked | None:
        """See `WorkerPlace.ended`."""
        return None if started.pid is None or runs(started, processes) else mask("It ended.")

    def paste(self, started: Started, text: str, processes: Processes, env: Mapping[str, str]) -> None:
        """See `WorkerPlace.paste`."""
        raise _of_a_person()

    def press(self, started: Started, key: str, processes: Processes, env: Mapping[str, str]) -> None:
        """See `WorkerPlace.press`."""
        raise _of_a_person()

    def close(self, started: Started, processes: Processes, env: Mapping[str, str]) -> None:
        """See `WorkerPlace.close`."""
        raise _of_a_person()


def _of_a_person() -> ForkRefused:
    return ForkRefused("It runs in a person's own terminal", "Go to that terminal.")
