"""What every place to run offers: starting a worker there, and everything that is done with one that runs."""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import orjson

from indexer.files import STALE_SECONDS, write_new
from indexer.masking import Masked
from indexer.paths import private_dir, state_home
from indexer.settings import WORKER_ID
from indexer.shapes import dataclass
from smart_fork.agents.plan import ForkPlan
from smart_fork.agents.starter import Delivery
from smart_fork.errors import ForkRefused
from smart_fork.system.processes import Processes
from smart_fork.workers import handoff
from smart_fork.workers.registry import Registry, WorkerRecord

_HANDED_OVER = ".command.json"


@dataclass(frozen=True, slots=True)
class Started:
    """Where a worker runs now. `attach` is what a person types to see it, `worker_id` whose process it is to be."""

    terminal_id: str | None = None
    pid: int | None = None
    log: Path | None = None
    attach: str = ""
    worker_id: str = ""


class WorkerPlace:
    """A place to run. It gives the agent the plan's arguments as they are; no shell sees them."""

    #: What a person calls it.
    name: ClassVar[str]
    #: How a prompt can be given to an agent there.
    delivers: ClassVar[frozenset[Delivery]]
    #: Whether the agent runs without a terminal there, and whether starting ends this program.
    headless = replaces = False

    def available(self, processes: Processes, env: Mapping[str, str]) -> bool:
        """Whether it can be used on this machine."""
        return True

    def inherited(self, processes: Processes, env: Mapping[str, str]) -> Mapping[str, str]:
        """Which variables a program has there that it is not given; of their values only that they are set counts."""
        return {}

    def start(self, plan: ForkPlan, worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> Started:
        """Start the plan's command, with exactly `env` as far as the place allows.

        Raises:
            SmartForkError: it could not be started.
        """
        raise NotImplementedError

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> Masked | None:
        """`None` while it runs; then what it said last."""
        raise NotImplementedError

    def exit_status(self, started: Started, processes: Processes, env: Mapping[str, str]) -> int | None:
        """How one that has ended did so, negative for a signal; `None` where nobody tells."""
        return None

    def screen(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str | None:
        """What is on its screen now; `None` where it has none."""
        return None

    def paste(self, started: Started, text: str, processes: Processes, env: Mapping[str, str]) -> None:
        """Put `text` into its terminal as one paste: nothing in it is a key, and nothing is sent off.

        Raises:
            ForkRefused: it takes no input, has ended, or cannot be shown to be ours.
        """
        raise NotImplementedError

    def press(self, started: Started, key: str, processes: Processes, env: Mapping[str, str]) -> None:
        """Press one of `KEYS`.

        Raises:
            ForkRefused: see `paste`.
        """
        raise NotImplementedError

    def close(self, started: Started, processes: Processes, env: Mapping[str, str]) -> None:
        """Have it end, and its window with it; it may still be ending when this returns. Nothing else is touched.

        Raises:
            ForkRefused: it cannot be shown to be ours.
        """
        raise NotImplementedError


#: What can be pressed: the number of an option, and what sends off.
KEYS = ("Enter", "Up", "Down", *"123456789")


def whereabouts(worker: WorkerRecord) -> Started:
    """Where a worker of the registry was started, by whichever process and however long ago."""
    log = Path(worker.log_path) if worker.log_path else None
    return Started(worker.terminal_id, worker.pid, log, worker.attach, worker.id)


def note_started(registry: Registry, worker_id: str, command: Sequence[str], started: Started) -> None:
    """Note that a worker runs, and where; the reverse of `whereabouts`."""
    registry.set_started(
        worker_id,
        command=command,
        terminal_id=started.terminal_id,
        pid=started.pid,
        log=started.log,
        attach=started.attach,
    )


def runs(started: Started, processes: Processes) -> bool:
    """Whether that very process runs.

    The numbers of processes are given again, but each keeps the environment that it was started with, and in it the
    worker's id.
    """
    if started.pid is None:
        return False
    env = processes.environment(started.pid)
    return env is not None and started.worker_id in ("", env.get(WORKER_ID))


def seems_gone(started: Started, processes: Processes) -> bool:
    """Whether that process has ended, or its number is another worker's by now.

    A program that is just becoming the agent does not bear the worker's mark yet.
    """
    if started.pid is None:
        return False
    env = processes.environment(started.pid)
    return env is None or env.get(WORKER_ID, started.worker_id) != started.worker_id


def require_ours(started: Started, processes: Processes) -> int:
    """Its process id.

    Raises:
        ForkRefused: there is no such process, or it is somebody else's.
    """
    if started.pid is None or not runs(started, processes):
        raise ForkRefused("Its process has ended, or another process has its id")
    return started.pid


def worker_file(worker: WorkerRecord, suffix: str) -> Path:
    """A file of this worker, below ``<SMART_FORK_HOME>/logs/workers``."""
    return private_dir(state_home() / "logs" / "workers") / f"{worker.id}{suffix}"


def hand_over(worker: WorkerRecord, command: Mapping[str, Any]) -> list[str]:
    """A short command that becomes `command`: what it is goes through a private file that it removes."""
    file = worker_file(worker, f".{secrets.token_hex(4)}{_HANDED_OVER}")
    for other in file.parent.glob(f"*{_HANDED_OVER}"):  # what nobody came for
        with contextlib.suppress(OSError):
            if time.time() - other.stat().st_mtime > STALE_SECONDS:
                other.unlink()
    write_new(file, [orjson.dumps(command)])
    return [sys.executable, "-I", str(Path(handoff.__file__).resolve()), str(file)]


def not_taken(command: Sequence[str]) -> None:
    """Remove what was handed over to a command that was not started."""
    if command[-1].endswith(_HANDED_OVER):
        Path(command[-1]).unlink(missing_ok=True)
