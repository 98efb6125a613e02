"""All places where a worker can run, and which workers still do: a new place is one class and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from indexer.runs import born
from indexer.settings import WORKER_ID
from indexer.values import seconds_in
from smart_fork.agents import AGENTS
from smart_fork.errors import NotFound, ProgramMissing, SmartForkError, Usage
from smart_fork.system.processes import Processes
from smart_fork.workers.iterm2 import INSTALL, ITerm2Place
from smart_fork.workers.place import BackgroundPlace, HerePlace, ProcessPlace, WorkerPlace, whereabouts
from smart_fork.workers.registry import LIVING, Registry, WorkerRecord
from smart_fork.workers.tmux import Panes, TmuxPlace

_OWN = AGENTS.in_background()
PLACES: tuple[WorkerPlace, ...] = (
    TmuxPlace(), ProcessPlace(), ITerm2Place(), *map(BackgroundPlace, _OWN, _OWN), HerePlace(),
)  # fmt: skip


def choose_place(name: str | None, processes: Processes, env: Mapping[str, str]) -> WorkerPlace:
    """The place of that name; without one, tmux where it is installed, else a process.

    An agent too old to have background sessions of its own runs as a process instead.

    Raises:
        Usage: there is no such place.
        ProgramMissing: what it needs is not installed.
    """
    if name is None:
        name = "tmux" if TmuxPlace().available(processes, env) else "process"
    place = next((known for known in PLACES if known.name == name), None)
    if place is None:
        raise Usage(f"Unknown place to run: {name}", f"Places are: {', '.join(known.name for known in PLACES)}.")
    if not place.available(processes, env):
        if isinstance(place, ITerm2Place):
            raise ProgramMissing("iTerm2 is not available", INSTALL)
        if place.agent:
            return ProcessPlace()
        raise ProgramMissing(f"{name} is not installed", "Install it, or run the fork as a process.")
    return place


def place_of(worker: WorkerRecord) -> WorkerPlace:
    """Where a worker of the registry was started.

    Raises:
        NotFound: this version knows no such place.
    """
    place = next((known for known in PLACES if known.name == worker.place), None)
    if place is None:
        raise NotFound(f"{worker.id} runs in a place unknown to this version: {worker.place}")
    return place


#: A process that began later after its worker was registered has only got the same number.
START_SECONDS = 60.0
#: What has no process or window by then was never started: whoever was about to was killed.
STARTING_SECONDS = 300.0
#: A terminal that is just becoming the agent does not look like it yet.
BECOMING_SECONDS = 60.0


def lives(
    worker: WorkerRecord, processes: Processes, env: Mapping[str, str], now: float, *, panes: Panes | None = None
) -> bool:
    """Whether there is still something of a worker, which may have been said to run long ago."""
    if worker.is_over:
        return False
    began = seconds_in(worker.started_at)
    if worker.pid is None:
        cut_off = worker.state == "starting" and began is not None and not _is_being_made(worker, processes, now, began)
        return not cut_off and not _window_is_gone(worker, processes, env)
    if not processes.alive(worker.pid):
        return False
    environment, panes = processes.environment(worker.pid), panes or Panes(processes, env)
    if environment:
        return environment.get(WORKER_ID) == worker.id or _is_becoming(worker, now, began, panes)
    since = born(worker.pid)  # the system does not tell what it was started with
    if since is not None and began is not None:
        return since <= began + START_SECONDS
    # The pane's number alone says nothing: a new tmux server counts from the beginning.
    return worker.place != "tmux" or panes.pid_in(worker.terminal_id) in (None, worker.pid)


def note_ends(registry: Registry, processes: Processes, env: Mapping[str, str], now: float) -> list[WorkerRecord]:
    """Have the registry say what is true now: the workers that are found to have ended."""
    panes = Panes(processes, env)
    gone = [worker for worker in registry.workers(states=LIVING) if not lives(worker, processes, env, now, panes=panes)]
    return [worker for one in gone if (worker := registry.note_end(one, now=now))]


def _is_being_made(worker: WorkerRecord, processes: Processes, now: float, began: float) -> bool:
    if worker.maker is None:
        return now - began <= STARTING_SECONDS
    # Another process may have its number by now.
    return processes.alive(worker.maker) and (born(worker.maker) or 0.0) <= began + START_SECONDS


def _is_becoming(worker: WorkerRecord, now: float, began: float | None, panes: Panes) -> bool:
    """Whether what runs there may not bear the worker's mark yet: it is a program that becomes the agent."""
    if began is None or now - began >= BECOMING_SECONDS:
        return False
    return worker.place in ("here", "iterm2") or (
        worker.place == "tmux" and panes.pid_in(worker.terminal_id) == worker.pid
    )


def _window_is_gone(worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> bool:
    if worker.terminal_id is None:
        return False
    with suppress(SmartForkError):
        return place_of(worker).ended(whereabouts(worker), processes, env) is not None
    return False
