"""The places where a fork can run: a new one is one file beside this and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from smart_fork.errors import NotFound, ProgramMissing, Usage
from smart_fork.system.processes import Processes
from smart_fork.workers.here import HerePlace
from smart_fork.workers.iterm2 import INSTALL, ITerm2Place
from smart_fork.workers.place import WorkerPlace
from smart_fork.workers.process import ProcessPlace
from smart_fork.workers.registry import WorkerRecord
from smart_fork.workers.tmux import TmuxPlace

PLACES: tuple[WorkerPlace, ...] = (TmuxPlace(), ProcessPlace(), ITerm2Place(), HerePlace())


def choose_place(name: str | None, processes: Processes, env: Mapping[str, str]) -> WorkerPlace:
    """The place of that name; without one, tmux where it is installed, else a process.

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
