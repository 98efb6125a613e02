"""The terminal that the command was typed in: the agent takes the place of smart-fork."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from smart_fork.plan import ForkPlan
from smart_fork.processes import Processes
from smart_fork.registry import Worker
from smart_fork.workers.base import Started


class HerePlace:
    """Becomes the agent. Nothing of ours is left to report afterwards."""

    name = "here"
    headless = False
    replaces = True

    def available(self, processes: Processes, env: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Everywhere that a person types."""
        return True

    def start(self, plan: ForkPlan, worker: Worker, processes: Processes, env: Mapping[str, str]) -> Started:  # noqa: ARG002
        """See `Place.start`. Does not return."""
        sys.stdout.flush()
        sys.stderr.flush()
        processes.replace(plan.argv, cwd=plan.cwd, env=env)

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """See `Place.ended`."""
        return None
