"""Kinds of places in which a worker (an agent that smart-fork started) can run, and typing into its terminal.

Here are the base class, and the places without a window of their own: a background process, the agent's own background
sessions, and the current terminal.
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

from indexer.environment import DEPTH, WORKER_ID
from indexer.lazy_compilation import dataclass
from indexer.masking import NOTHING, Masked, ending, mask, mask_screen
from indexer.safe_files import STALE_SECONDS, open_regular, private_dir, state_home, write_new
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.screen import Question, Screen
from smart_fork.agents.start_command import Delivery
from smart_fork.errors import ForkRefused, ProgramFailed, SmartForkError
from smart_fork.system.processes import Completed, Machine, Processes
from smart_fork.workers import exec_command
from smart_fork.workers.registry import Registry, WorkerRecord

if TYPE_CHECKING:
    from smart_fork.agents.start_command import Background, BackgroundSession

_HANDED_OVER = ".command.json"


@dataclass(frozen=True, slots=True)
class WorkerLocation:
    """The location of a running worker: its process, its terminal, its output file (`log`).

    `attach` is the command that shows the worker to a person. `worker_id` is the worker that owns the process.
    """

    terminal_id: str | None = None
    pid: int | None = None
    log: Path | None = None
    attach: str = ""
    worker_id: str = ""
    session_id: str | None = None

    def note(self, registry: Registry, worker_id: str, command: Sequence[str]) -> None:
        """Record this location in the worker's registry row, from which `location_of` reads it."""
        registry.set_started(
            worker_id, command=command, terminal_id=self.terminal_id, pid=self.pid, log=self.log, attach=self.attach
        )


class WorkerPlace:
    """A kind of place to run a worker, such as a tmux window. Arguments reach the agent without a shell."""

    #: The place's name, and its only agent, if it has one.
    name: str
    agent: AgentName | None = None
    #: The possible ways to give an agent its prompt.
    delivers: ClassVar[frozenset[Delivery]]
    #: Why typing is impossible, and what to do instead.
    untyped: ClassVar[tuple[str, str]]
    #: True if the agent runs without a terminal; true if the start replaces this process.
    headless = replaces = False

    @property
    def restarts(self) -> bool:
        """Return True if no text can be typed here: messages are then sent by resuming the worker's session."""
        return self.headless or self.agent is not None

    def available(self, machine: Machine) -> bool:
        """Return True if workers can run in this kind of place on this machine."""
        return True

    def inherited(self, machine: Machine) -> Mapping[str, str]:
        """Return the environment variables that a program gets from the place itself, such as the tmux server's."""
        return {}

    def start(self, plan: ForkPlan, worker: WorkerRecord, machine: Machine) -> WorkerLocation:
        """Start the plan's command in a new place of this kind, with exactly the environment of `machine` if possible.

        Raises:
            SmartForkError: the command could not be started.
        """
        raise NotImplementedError

    def ended(self, started: WorkerLocation, machine: Machine) -> Masked | None:
        """Return the last output of an ended worker, or a sentence if the output is lost; `None` if it still runs."""
        raise NotImplementedError

    def runs(self, started: WorkerLocation, machine: Machine) -> bool:
        """Return True if the worker's own process still runs."""
        return is_running(started, machine.processes)

    def asks(self, started: WorkerLocation, machine: Machine) -> str:
        """Return the question that the worker waits on, if this kind of place can tell; else an empty string."""
        return ""

    def exit_status(self, started: WorkerLocation, machine: Machine) -> int | None:
        """Return the exit status of a worker that has ended, negative for a signal; `None` if unknown."""
        return None if started.pid is None else machine.processes.exit_status(started.pid)

    def screen(self, started: WorkerLocation, machine: Machine) -> str | None:
        """Return the text on the worker's screen; `None` if it has no screen."""
        return None

    def paste(self, started: WorkerLocation, text: str, machine: Machine) -> None:
        """Paste `text` into the worker's terminal in one piece, without submitting it; no character acts as a key.

        Raises:
            ForkRefused: such a place takes no input, the worker has ended, or its process may be another program's.
        """
        raise ForkRefused(*self.untyped)

    def press(self, started: WorkerLocation, key: str, machine: Machine) -> None:
        """Press one of `KEYS` in the worker's terminal. Raise `ForkRefused` for the same reasons as `paste`."""
        raise ForkRefused(*self.untyped)

    def typist(self, started: WorkerLocation, screen: Screen, machine: Machine) -> Typist:
        """Return the object that types into the worker's terminal. `screen` recognizes what the agent shows there."""
        return Typist(self, started, screen, machine)

    def close(self, started: WorkerLocation, machine: Machine) -> None:
        """Ask the worker to end, and close its window. It may still be ending when this method returns.

        Raises:
            ForkRefused: the process with the worker's id may be another program's.
        """
        raise NotImplementedError


#: The keys that can be pressed: numbers of options, and keys that move and submit.
KEYS = ("Enter", "Up", "Down", *"123456789")


def location_of(worker: WorkerRecord) -> WorkerLocation:
    """Return the location of a worker (its process, terminal and output file), from its row in the registry."""
    log = Path(worker.log_path) if worker.log_path else None
    return WorkerLocation(worker.terminal_id, worker.pid, log, worker.attach, worker.id, worker.session_id)


def is_running(started: WorkerLocation, processes: Processes) -> bool:
    """Return True if the worker's own process still runs.

    The process must have the worker's id in its environment, because the system reuses process ids.
    """
    if started.pid is None:
        return False
    env = processes.environment(started.pid)
    return env is not None and started.worker_id in ("", env.get(WORKER_ID))


def has_ended(started: WorkerLocation, processes: Processes) -> bool:
    """Return True if the worker's process has ended, or if its process id belongs to another worker now.

    A process without any worker's id in its environment has not ended: it may be about to become the agent.
    """
    if started.pid is None:
        return False
    env = processes.environment(started.pid)
    return env is None or env.get(WORKER_ID, started.worker_id) != started.worker_id


def require_ours(started: WorkerLocation, processes: Processes) -> int:
    """Return the id of the worker's process; refuse (`ForkRefused`) if the process has ended or is not the worker's."""
    if started.pid is None or not is_running(started, processes):
        raise ForkRefused("Its process has ended, or another process has its id")
    return started.pid


def worker_file(worker: WorkerRecord, suffix: str) -> Path:
    """Return the path of the worker's file with this suffix, below ``<SMART_FORK_HOME>/logs/workers``."""
    return private_dir(state_home() / "logs" / "workers") / f"{worker.id}{suffix}"


def command_through_file(worker: WorkerRecord, command: Mapping[str, Any]) -> list[str]:
    """Write `command` to a private file. Return a short command that reads and deletes the file, and runs `command`."""
    file = worker_file(worker, f".{secrets.token_hex(4)}{_HANDED_OVER}")
    for other in file.parent.glob(f"*{_HANDED_OVER}"):  # what nobody came for
        with contextlib.suppress(OSError):
            if time.time() - other.stat().st_mtime > STALE_SECONDS:
                other.unlink()
    write_new(file, [orjson.dumps(command)])
    return [sys.executable, "-I", str(Path(exec_command.__file__).resolve()), str(file)]


def remove_command_file(command: Sequence[str]) -> None:
    """Delete the private file that `command_through_file` may have written for a command that is not started."""
    if command[-1].endswith(_HANDED_OVER):
        Path(command[-1]).unlink(missing_ok=True)


#: Seconds until a screen must show typed text.
SCREEN_SECONDS = 5.0
#: The most attempts to submit a text.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Typist:
    """Types text and presses keys in one worker's terminal, and reads its screen."""

    place: WorkerPlace
    started: WorkerLocation
    screen: Screen
    around: Machine

    def type(self, text: str) -> None:
        """Paste `text`, and wait until the screen shows it: an earlier Enter could be taken as a part of it.

        Raises:
            ProgramFailed: the agent does not accept the typed text.
        """
        for _ in range(_TRIES):
            before = self.shown()
            self.place.paste(self.started, text, self.around)
            if self.wait(partial(self._has_come, text, before), SCREEN_SECONDS):
                return
            if before is None or self.shown() != before:
                return  # as something that we do not know
        # A program that is just starting throws away what is typed.
        raise ProgramFailed(f"{self.started.worker_id} does not accept the typed text", f"See: {self.started.attach}")

    def send(self, text: str, done: Callable[[], bool], seconds: float = SCREEN_SECONDS) -> bool:
        """Press Enter until `done` returns True, but only while the input line still holds `text`.

        Return True if `done` returned True within about `seconds`.
        """
        for _ in range(_TRIES):
            self.press("Enter")
            if self.wait(done, seconds / _TRIES):
                return True
            if not self.holds(text):
                return self.wait(done, seconds)
        return False

    def press(self, key: str) -> None:
        self.place.press(self.started, key, self.around)

    def shown(self) -> str | None:
        """Return the text on the worker's screen; `None` if it has no screen."""
        return self.place.screen(self.started, self.around)

    def asked(self) -> Question | None:
        """Return the question on the worker's screen, if any."""
        return self.screen.question(mask_screen(self.shown() or ""))

    def holds(self, text: str) -> bool:
        return self.screen.holds(self.shown() or "", text)

    def wait(self, look: Callable[[], bool], seconds: float) -> bool:
        """Call `look` until it returns True, for at most `seconds`. Return its last result."""
        deadline = self.around.clock.now() + seconds
        while not (found := look()) and self.around.clock.now() < deadline:
            self.around.clock.sleep(_LOOK_SECONDS)
        return found

    def _has_come(self, text: str, before: str | None) -> bool:
        return self.shown() != before and self.holds(text)


#: Bytes read at the end of a worker's output file, and characters shown of them.
_READ_BYTES, _LAST_CHARACTERS = 64_000, 2_000
_FIRST_WORD = re.compile(r"\A\S*")


class ProcessPlace(WorkerPlace):
    """A background process as a worker's place: the agent runs without a terminal, answers its prompt, and ends."""

    name = "process"
    headless = True
    untyped = "It has no terminal and takes no message before it ends", "Wait for it."
    delivers = frozenset[Delivery]({"argument", "input"})

    def start(self, plan: ForkPlan, worker: WorkerRecord, machine: Machine) -> WorkerLocation:
        log = worker_file(worker, ".log")
        said = plan.said.encode() if plan.delivery == "input" else b""
        pid = machine.processes.start(plan.argv, cwd=plan.cwd, env=machine.env, log=log, input=said)
        return WorkerLocation(pid=pid, log=log, attach=f"tail -f {log}", worker_id=worker.id)

    def ended(self, started: WorkerLocation, machine: Machine) -> Masked | None:
        if started.pid is None or started.log is None or is_running(started, machine.processes):
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

    def close(self, started: WorkerLocation, machine: Machine) -> None:
        machine.processes.end(require_ours(started, machine.processes), force=False)


#: Seconds for an agent's command, for a session to get a process, and between two looks.
VERB_SECONDS, BEGIN_SECONDS, _LOOK_SECONDS = 30.0, 60.0, 0.2
#: Seconds for which a list of sessions is reused: one answer asks about several workers.
_KNOWN_SECONDS = 0.5
_listed: dict[tuple[str | None, ...], tuple[float, Mapping[str, BackgroundSession]]] = {}


@dataclass(frozen=True, slots=True)
class BackgroundPlace(WorkerPlace):
    """A background session that the agent itself manages, as a worker's place, named as the agent."""

    name: str
    agent: AgentName
    untyped: ClassVar = "It takes keys only where it is open", "Open it in a terminal."
    delivers: ClassVar = frozenset[Delivery]({"argument"})

    @property
    def _verbs(self) -> Background:
        return AGENTS.background_of(self.agent)

    def available(self, machine: Machine) -> bool:
        """Return True if the installed version of the agent has commands for background sessions."""
        from smart_fork.agents.programs import Program  # other places need none

        program = Program.find(self.agent, machine.env)
        return Program.lists(program, ("--help",), self._verbs.sign, machine.processes, machine.env)

    def start(self, plan: ForkPlan, worker: WorkerRecord, machine: Machine) -> WorkerLocation:
        """Start a background session of the agent, and wait until the session has a process."""
        # The agent may start a supervisor, which gives this environment to all later sessions.
        bare = {name: value for name, value in machine.env.items() if name not in (DEPTH, WORKER_ID)}
        machine = replace(machine, env=bare)
        _listed.clear()
        done = machine.processes.run(plan.argv, cwd=plan.cwd, env=bare, timeout=VERB_SECONDS)
        one = self._verbs.begun(done.text) if done.ok else ""
        if not one:
            raise ProgramFailed(f"{AGENTS.title_of(self.agent)} started no session: {done.complaint}")
        home = [f"{name}={value}" for name, value in AGENTS[self.agent].home.environment().items()]
        attach = shlex.join([*(["env", *home] if home else []), self.name, "attach", one])
        started = WorkerLocation(one, attach=attach, worker_id=worker.id, session_id=plan.new_session_id)
        try:
            return replace(started, session_id=self._begun(started, machine))
        except BaseException:  # nobody would know of it
            with contextlib.suppress(SmartForkError):
                self.close(started, machine)
            raise

    def _begun(self, started: WorkerLocation, machine: Machine) -> str:
        deadline = time.monotonic() + BEGIN_SECONDS
        while not (row := self._row(started, machine)) or not (row.runs or row.over):
            if time.monotonic() >= deadline:
                raise ProgramFailed(f"{AGENTS.title_of(self.agent)} does not begin session {started.terminal_id}")
            time.sleep(_LOOK_SECONDS)
        return row.session_id

    def runs(self, started: WorkerLocation, machine: Machine) -> bool:
        row = self._row(started, machine)
        return row is not None and row.runs

    def ended(self, started: WorkerLocation, machine: Machine) -> Masked | None:
        if self.runs(started, machine):
            return None
        with self._home(started):
            return mask(self._verbs.last_words(started.terminal_id or "") or "It ended.")

    def asks(self, started: WorkerLocation, machine: Machine) -> str:
        row = self._row(started, machine)
        return row.asks if row else ""

    def close(self, started: WorkerLocation, machine: Machine) -> None:
        """Stop the session; its conversation is not deleted."""
        done = self._told(self._with_home(started, machine), "stop", started.terminal_id or "")
        if not done.ok:
            raise ForkRefused(f"{AGENTS.title_of(self.agent)} did not stop it: {done.complaint}")

    def _row(self, started: WorkerLocation, machine: Machine) -> BackgroundSession | None:
        machine = self._with_home(started, machine)
        whose = machine.env.get("HOME"), machine.env.get(AGENTS[self.agent].home.variable)
        at, known = _listed.get(whose, (0.0, {}))
        if time.monotonic() - at >= _KNOWN_SECONDS:
            done = self._told(machine, *self._verbs.listing)
            if not done.ok:
                raise ProgramFailed(f"{AGENTS.title_of(self.agent)} does not list its sessions: {done.complaint}")
            known = self._verbs.sessions(done.stdout)
            _listed[whose] = time.monotonic(), known
        return known.get(started.terminal_id or "")

    def _told(self, machine: Machine, *words: str) -> Completed:
        from smart_fork.agents.programs import Program

        argv = [Program.find(self.agent, machine.env), *words]
        _listed.clear()
        return machine.processes.run(argv, cwd=Path(os.sep), env=machine.env, timeout=VERB_SECONDS, whom=words[0])

    def _with_home(self, started: WorkerLocation, machine: Machine) -> Machine:
        """Return `machine` with variables that select the agent's home (one for each account) that has the session."""
        with self._home(started):
            return replace(machine, env={**machine.env, **AGENTS[self.agent].home.environment()})

    def _home(self, started: WorkerLocation) -> contextlib.AbstractContextManager[None]:
        log = READERS.original_of(self.agent, started.session_id) if started.session_id else None
        return AGENTS[self.agent].home.used(log)


class HerePlace(WorkerPlace):
    """The current terminal as a worker's place: this process is replaced by the agent."""

    name = "here"
    untyped = "It runs in a person's own terminal", "Go to that terminal."
    delivers = frozenset[Delivery]({"argument"})
    replaces = True

    def start(self, plan: ForkPlan, worker: WorkerRecord, machine: Machine) -> WorkerLocation:
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # what stderr has not taken is lost, and the agent starts
            sys.stderr.flush()
        machine.processes.replace(plan.argv, cwd=plan.cwd, env=machine.env)

    def ended(self, started: WorkerLocation, machine: Machine) -> Masked | None:
        return None if started.pid is None or is_running(started, machine.processes) else mask("It ended.")

    def close(self, started: WorkerLocation, machine: Machine) -> None:
        raise ForkRefused(*self.untyped)
