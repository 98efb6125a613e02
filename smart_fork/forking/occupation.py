"""Whether somebody else seems to be in a session: an agent that we did not start leaves no note with us."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from smart_fork.agents import AGENTS
from smart_fork.agents.facets import presences
from smart_fork.agents.starter import Presence
from smart_fork.errors import SmartForkError
from smart_fork.forking.world import World
from smart_fork.system.processes import every_process

#: A log that was written to this short a time ago is being written to.
FRESH_SECONDS = 5.0
PS_SECONDS = 10.0


def looks_occupied(session_id: str, log: Path, world: World, *, just_ended: bool = False) -> str | None:
    """Why it seems so; `None` where nothing speaks for it. `just_ended`: a worker of ours may have written last."""
    if not just_ended and _written_to_just_now(log, world):
        return "its log changed just now"
    number = process_in(session_id, world)
    return f"process {number} was started with its id" if number else None


def _written_to_just_now(log: Path, world: World) -> bool:
    try:
        return world.clock.now() - log.stat().st_mtime < FRESH_SECONDS
    except OSError:
        return False


def process_in(session_id: str, world: World) -> str | None:
    """The number of an agent's process that was told to go on in that session."""
    try:
        listed = world.processes.run(["ps", "-A", "-ww", "-o", "pid=,args="], timeout=PS_SECONDS)
    except SmartForkError:
        return None
    for line in listed.text.splitlines() if listed.ok else ():
        number, *words = line.split()
        for presence in presences():
            if presence.runs(words) and (
                presence.goes_on_in(session_id, words) or number in map(str, presence.noted(session_id))
            ):
                return number
    return None


def parents_in(session_id: str) -> set[int]:
    """The numbers of agents' processes that have started something in that session, which still runs.

    Their own words need not name the session: a fork's servers may be told its parent's, too. What is no child of an
    agent has only inherited the variable.
    """
    import psutil  # takes a while

    found = set()
    for process in every_process():
        with contextlib.suppress(psutil.Error, OSError):
            if agents := _told(process.environ(), session_id):
                parent = psutil.Process(process.ppid())
                name, words = parent.name(), parent.cmdline()
                if any(name in one.programs or one.runs(words) for one in agents):
                    found.add(int(parent.pid))
    return found


def _told(environment: Mapping[str, str], session_id: str) -> list[Presence]:
    """The agents that name that session to what they start, as this environment has it."""
    return [
        agent.presence
        for agent in AGENTS
        if agent.presence and session_id in [environment.get(name) for name in agent.session_variables]
    ]
