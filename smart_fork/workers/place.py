"""A place to run: starting a worker there, and everything that is done with one that runs.

Two places need no other program: a process without a terminal, and the terminal that the command was typed in.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import orjson

from indexer.files import STALE_SECONDS, open_regular, private_dir, state_home, write_new
from indexer.lazy import dataclass
from indexer.masking import NOTHING, Masked, ending, mask, mask_screen
from indexer.settings import WORKER_ID
from smart_fork.agents.plan import ForkPlan
from smart_fork.agents.questions import Question, Screen
from smart_fork.agents.starter import Delivery
from smart_fork.errors import ForkRefused, ProgramFailed
from smart_fork.system.processes import Machine, Processes
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

    def note(self, registry: Registry, worker_id: str, command: Sequence[str]) -> None:
        """Note that a worker runs, and where; the reverse of `whereabouts`."""
        registry.set_started(
            worker_id,
            command=command,
            terminal_id=self.terminal_id,
            pid=self.pid,
            log=self.log,
            attach=self.attach,
        )


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


#: How long a screen may take to show what was typed.
SCREEN_SECONDS, _LOOK_SECONDS = 5.0, 0.05
#: How often the same is typed, where a program does not take it.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Typist:
    """Types into the terminal of one worker."""

    place: WorkerPlace
    started: Started
    screen: Screen
    around: Machine

    def type(self, text: str) -> None:
        """Paste, and wait until it is there: an Enter that comes too soon may be taken as part of what is pasted.

        Raises:
            ForkRefused: see `WorkerPlace.paste`.
            ProgramFailed: it does not accept the typed text.
        """
        for _ in range(_TRIES):
            before = self.shown()
            self.place.paste(self.started, text, self.around.processes, self.around.env)
            if self.wait(partial(self._has_come, text, before), SCREEN_SECONDS):
                return
            if before is None or self.shown() != before:
                return  # as something that we do not know
        # A program that is just starting throws away what is typed.
        raise ProgramFailed(f"{self.started.worker_id} does not accept the typed text", f"See: {self.started.attach}")

    def send(self, text: str, done: Callable[[], bool], seconds: float) -> bool:
        """Press Enter, and once more where the text is still there; never into anything else."""
        for _ in range(_TRIES):
            self.press("Enter")
            if self.wait(done, seconds / _TRIES):
                return True
            if not self.holds(text):
                return self.wait(done, seconds)
        return False

    def press(self, key: str) -> None:
        """See `WorkerPlace.press`."""
        self.place.press(self.started, key, self.around.processes, self.around.env)

    def shown(self) -> str | None:
        """What is on the screen now."""
        return self.place.screen(self.started, self.around.processes, self.around.env)

    def asked(self) -> Question | None:
        """What the screen asks now."""
        return self.screen.question(mask_screen(self.shown() or ""))

    def holds(self, text: str) -> bool:
        """Whether `text` stands in the line to type in."""
        return self.screen.holds(self.shown() or "", text)

    def wait(self, look: Callable[[], bool], seconds: float) -> bool:
        """Whether what is looked for comes in so long."""
        deadline = self.around.clock.now() + seconds
        while not (found := look()) and self.around.clock.now() < deadline:
            self.around.clock.sleep(_LOOK_SECONDS)
        return found

    def _has_come(self, text: str, before: str | None) -> bool:
        return self.shown() != before and self.holds(text)


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
