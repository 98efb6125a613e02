"""The terminal that the command was typed in: the agent takes the place of smart-fork."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from indexer.masking import Masked, mask
from smart_fork.agents.plan import ForkPlan
from smart_fork.agents.starter import Delivery
from smart_fork.errors import ForkRefused
from smart_fork.places.base import Started, runs
from smart_fork.registry.workers import WorkerRecord
from smart_fork.system.processes import Processes


class HerePlace:
    """Becomes the agent. It is a person's terminal: what happens there is that person's to do."""

    name = "here"
    headless = False
    delivers: frozenset[Delivery] = frozenset({"argument"})
    replaces = True

    def available(self, processes: Processes, env: Mapping[str, str]) -> bool:
        """Everywhere that a person types."""
        return True

    def inherited(self, processes: Processes, env: Mapping[str, str]) -> Mapping[str, str]:
        """See `Place.inherited`: none."""
        return {}

    def start(self, plan: ForkPlan, worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> Started:
        """See `Place.start`. Does not return."""
        sys.stdout.flush()
        sys.stderr.flush()
        processes.replace(plan.argv, cwd=plan.cwd, env=env)

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> Masked | None:
        """See `Place.ended`."""
        return None if started.pid is None or runs(started, processes) else mask("It ended.")

    def exit_status(self, started: Started, processes: Processes, env: Mapping[str, str]) -> int | None:
        """See `Place.exit_status`."""
        return None

    def screen(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str | None:
        """See `Place.screen`."""
        return None

    def paste(self, started: Started, text: str, processes: Processes, env: Mapping[str, str]) -> None:
        """See `Place.paste`."""
        raise _of_a_person()

    def press(self, started: Started, key: str, processes: Processes, env: Mapping[str, str]) -> None:
        """See `Place.press`."""
        raise _of_a_person()

    def close(self, started: Started, processes: Processes, env: Mapping[str, str]) -> None:
        """See `Place.close`."""
        raise _of_a_person()


def _of_a_person() -> ForkRefused:
    return ForkRefused("It runs in a person's own terminal", "Go to that terminal.")
