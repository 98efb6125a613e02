"""A process of its own without a terminal, whose output is kept in a private file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from indexer.masking import NOTHING, Masked, ending, mask
from indexer.transcripts.lines import open_regular
from smart_fork.agents.plan import ForkPlan
from smart_fork.agents.starter import Delivery
from smart_fork.errors import ForkRefused
from smart_fork.system.processes import Processes
from smart_fork.workers.place import Started, WorkerPlace, require_ours, runs, worker_file
from smart_fork.workers.registry import WorkerRecord

#: So much is read of what it wrote, and so much of that is shown.
_READ_BYTES, _LAST_CHARACTERS = 64_000, 2_000
_FIRST_WORD = re.compile(r"\A\S*")


class ProcessPlace(WorkerPlace):
    """Runs the agent to the end of its answer, detached from whoever started it."""

    name = "process"
    headless = True
    delivers = frozenset[Delivery]({"argument", "input"})

    def start(self, plan: ForkPlan, worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> Started:
        """See `WorkerPlace.start`."""
        log = worker_file(worker, ".log")
        said = plan.said.encode() if plan.delivery == "input" else b""
        pid = processes.start(plan.argv, cwd=plan.cwd, env=env, log=log, input=said)
        return Started(pid=pid, log=log, attach=f"tail -f {log}", worker_id=worker.id)

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> Masked | None:
        """See `WorkerPlace.ended`."""
        if started.pid is None or started.log is None or runs(started, processes):
            return None
        try:
            with open_regular(started.log) as file:
                start = max(0, os.fstat(file.fileno()).st_size - _READ_BYTES)
                file.seek(start)
                words = file.read().decode("utf-8", "replace")
        except OSError:
            return NOTHING
        # What the first word was cut from is not known: it may be a secret's end.
        return ending(mask((_FIRST_WORD.sub("", words) if start else words).strip()), _LAST_CHARACTERS)

    def exit_status(self, started: Started, processes: Processes, env: Mapping[str, str]) -> int | None:
        """See `WorkerPlace.exit_status`."""
        return None if started.pid is None else processes.exit_status(started.pid)

    def paste(self, started: Started, text: str, processes: Processes, env: Mapping[str, str]) -> None:
        """See `WorkerPlace.paste`."""
        raise ForkRefused("It has no terminal and takes no message before it ends", "Wait for it.")

    def press(self, started: Started, key: str, processes: Processes, env: Mapping[str, str]) -> None:
        """See `WorkerPlace.press`."""
        raise ForkRefused("It has no terminal and takes no keys")

    def close(self, started: Started, processes: Processes, env: Mapping[str, str]) -> None:
        """See `WorkerPlace.close`."""
        processes.end(require_ours(started, processes), force=False)
