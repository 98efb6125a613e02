"""A place to run: starting a worker there, and everything that is done with one that runs.

Two places need no other program: a process without a terminal, and the terminal that the command was typed in.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from indexer.files import STALE_SECONDS, open_regular, private_dir, state_home, write_new
from indexer.lazy import dataclass
from indexer.masking import NOTHING, Masked, ending, mask, mask_screen
from indexer.settings import DEPTH, WORKER_ID
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.screen import Question, Screen
from smart_fork.agents.starter import Delivery, ForkPlan
from smart_fork.errors import ForkRefused, ProgramFailed, SmartForkError
from smart_fork.system.processes import Completed, Machine, Processes
from smart_fork.workers import handoff
from smart_fork.workers.registry import Registry, WorkerRecord

if TYPE_CHECKING:
    from smart_fork.agents.starter import Background, BackgroundSession

_HANDED_OVER = ".command.json"


@dataclass(frozen=True, slots=True)
class Started:
    """Where a worker runs now. `attach` is what a person types to see it, `worker_id` whose process it is to be."""

    terminal_id: str | None = None
    pid: int | None = None
    log: Path | None = None
    attach: str = ""
    worker_id: str = ""
    session_id: str | None = None

    def note(self, registry: Registry, worker_id: str, command: Sequence[str]) -> None:
        """Note that a worker runs, and where; the reverse of `whereabouts`."""
        registry.set_started(
            worker_id, command=command, terminal_id=self.terminal_id, pid=self.pid, log=self.log, attach=self.attach
        )


class WorkerPlace:
    """A place to run. It gives the agent the plan's arguments as they are; no shell sees them."""

    #: What a person calls it, and the only agent that runs there, if one is.
    name: str
    agent: AgentName | None = None
    #: How a prompt can be given to an agent there.
    delivers: ClassVar[frozenset[Delivery]]
    #: Why nothing can be typed there, and what to do instead.
    untyped: ClassVar[tuple[str, str]]
    #: Whether the agent runs without a terminal there, and whether starting ends this program.
    headless = replaces = False

    @property
    def restarts(self) -> bool:
        """True if a message resumes the session, because there is no window to type in."""
        return self.headless or self.agent is not None

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

    def runs(self, started: Started, processes: Processes, env: Mapping[str, str]) -> bool:
        """Whether its own process runs."""
        return runs(started, processes)

    def asks(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str:
        """What it waits for, if the place knows; else empty."""
        return ""

    def exit_status(self, started: Started, processes: Processes, env: Mapping[str, str]) -> int | None:
        """How one that has ended did so, negative for a signal; `None` where nobody tells."""
        return None if started.pid is None else processes.exit_status(started.pid)

    def screen(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str | None:
        """What is on its screen now; `None` where it has none."""
        return None

    def paste(self, started: Started, text: str, processes: Processes, env: Mapping[str, str]) -> None:
        """Put `text` into its terminal as one paste: nothing in it is a key, and nothing is sent off.

        Raises:
            ForkRefused: it takes no input, has ended, or cannot be shown to be ours.
        """
        raise ForkRefused(*self.untyped)

    def press(self, started: Started, key: str, processes: Processes, env: Mapping[str, str]) -> None:
        """Press one of `KEYS`.

        Raises:
            ForkRefused: see `paste`.
        """
        raise ForkRefused(*self.untyped)

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
    return Started(worker.terminal_id, worker.pid, log, worker.attach, worker.id, worker.session_id)


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
    untyped = "It has no terminal and takes no message before it ends", "Wait for it."
    delivers = frozenset[Delivery]({"argument", "input"})

    def start(self, plan: ForkPlan, worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> Started:
        log = worker_file(worker, ".log")
        said = plan.said.encode() if plan.delivery == "input" else b""
        pid = processes.start(plan.argv, cwd=plan.cwd, env=env, log=log, input=said)
        return Started(pid=pid, log=log, attach=f"tail -f {log}", worker_id=worker.id)

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> Masked | None:
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

    def close(self, started: Started, processes: Processes, env: Mapping[str, str]) -> None:
        processes.end(require_ours(started, processes), force=False)


#: How long a verb may take, how long a session may take to have a process, and how often that is looked at.
VERB_SECONDS, BEGIN_SECONDS, _LOOK_SECONDS = 30.0, 60.0, 0.2
#: How long a list of all sessions counts: several workers are asked about in one answer.
_KNOWN_SECONDS = 0.5
_listed: dict[tuple[str | None, ...], tuple[float, Mapping[str, BackgroundSession]]] = {}


@dataclass(frozen=True, slots=True)
class BackgroundPlace(WorkerPlace):
    """Runs an agent as one of its own background sessions. The place has the agent's name."""

    name: str
    agent: AgentName
    untyped: ClassVar = "It takes keys only where it is open", "Open it in a terminal."
    delivers: ClassVar = frozenset[Delivery]({"argument"})

    @property
    def _verbs(self) -> Background:
        return AGENTS.background_of(self.agent)

    def available(self, processes: Processes, env: Mapping[str, str]) -> bool:
        """Whether the installed version has the verbs."""
        from smart_fork.agents.programs import Program  # other places need none

        return Program.lists(Program.find(self.agent, env), ("--help",), self._verbs.sign, processes, env)

    def start(self, plan: ForkPlan, worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> Started:
        """See `WorkerPlace.start`. Waits until the session has a process."""
        # The agent may start a supervisor, which gives this environment to all later sessions.
        bare = {name: value for name, value in env.items() if name not in (DEPTH, WORKER_ID)}
        _listed.clear()
        done = processes.run(plan.argv, cwd=plan.cwd, env=bare, timeout=VERB_SECONDS)
        one = self._verbs.begun(done.text) if done.ok else ""
        if not one:
            raise ProgramFailed(f"{AGENTS.title_of(self.agent)} started no session: {done.complaint}")
        home = [f"{name}={value}" for name, value in AGENTS[self.agent].home.environment().items()]
        attach = shlex.join([*(["env", *home] if home else []), self.name, "attach", one])
        started = Started(one, attach=attach, worker_id=worker.id, session_id=plan.new_session_id)
        try:
            return replace(started, session_id=self._begun(started, processes, bare))
        except BaseException:  # nobody would know of it
            with contextlib.suppress(SmartForkError):
                self.close(started, processes, bare)
            raise

    def _begun(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str:
        deadline = time.monotonic() + BEGIN_SECONDS
        while not (row := self._row(started, processes, env)) or not (row.runs or row.over):
            if time.monotonic() >= deadline:
                raise ProgramFailed(f"{AGENTS.title_of(self.agent)} does not begin session {started.terminal_id}")
            time.sleep(_LOOK_SECONDS)
        return row.session_id

    def runs(self, started: Started, processes: Processes, env: Mapping[str, str]) -> bool:
        row = self._row(started, processes, env)
        return row is not None and row.runs

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> Masked | None:
        if self.runs(started, processes, env):
            return None
        with self._home(started):
            return mask(self._verbs.last_words(started.terminal_id or "") or "It ended.")

    def asks(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str:
        row = self._row(started, processes, env)
        return row.asks if row else ""

    def close(self, started: Started, processes: Processes, env: Mapping[str, str]) -> None:
        """See `WorkerPlace.close`. Its conversation stays."""
        env = self._around(started, env)
        done = self._told(processes, env, "stop", started.terminal_id or "")
        if not done.ok:
            raise ForkRefused(f"{AGENTS.title_of(self.agent)} did not stop it: {done.complaint}")

    def _row(self, started: Started, processes: Processes, env: Mapping[str, str]) -> BackgroundSession | None:
        env = self._around(started, env)
        whose = env.get("HOME"), env.get(AGENTS[self.agent].home.variable)
        at, known = _listed.get(whose, (0.0, {}))
        if time.monotonic() - at >= _KNOWN_SECONDS:
            done = self._told(processes, env, *self._verbs.listing)
            if not done.ok:
                raise ProgramFailed(f"{AGENTS.title_of(self.agent)} does not list its sessions: {done.complaint}")
            known = self._verbs.sessions(done.stdout)
            _listed[whose] = time.monotonic(), known
        return known.get(started.terminal_id or "")

    def _told(self, processes: Processes, env: Mapping[str, str], *words: str) -> Completed:
        from smart_fork.agents.programs import Program

        argv = [Program.find(self.agent, env), *words]
        _listed.clear()
        return processes.run(argv, cwd=Path(os.sep), env=env, timeout=VERB_SECONDS, whom=words[0])

    def _around(self, started: Started, env: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment in which the agent has that session: a person may have several accounts."""
        with self._home(started):
            return {**env, **AGENTS[self.agent].home.environment()}

    def _home(self, started: Started) -> contextlib.AbstractContextManager[None]:
        log = READERS.original_of(self.agent, started.session_id) if started.session_id else None
        return AGENTS[self.agent].home.used(log)


class HerePlace(WorkerPlace):
    """Becomes the agent. It is a person's terminal: what happens there is that person's to do."""

    name = "here"
    untyped = "It runs in a person's own terminal", "Go to that terminal."
    delivers = frozenset[Delivery]({"argument"})
    replaces = True

    def start(self, plan: ForkPlan, worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> Started:
        """See `WorkerPlace.start`. Does not return."""
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # what stderr has not taken is lost, and the agent starts
            sys.stderr.flush()
        processes.replace(plan.argv, cwd=plan.cwd, env=env)

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> Masked | None:
        return None if started.pid is None or runs(started, processes) else mask("It ended.")

    def close(self, started: Started, processes: Processes, env: Mapping[str, str]) -> None:
        raise ForkRefused(*self.untyped)
