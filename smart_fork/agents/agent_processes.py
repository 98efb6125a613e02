"""The processes of agents, and the session that each of them has open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path, PurePath
from typing import NamedTuple

from smart_fork.agents.description import AgentFacet
from smart_fork.system.processes import Running

#: Programs that run scripts.
_INTERPRETERS = {"node", "bun"}


#: A process that began this many seconds after a note only has the same number as the noted process.
START_SECONDS = 60.0


class ProcessNote(NamedTuple):
    """An agent's note that a process has a session open, such as a file named after the process.

    `since` is the note's time in seconds since the epoch. `sure` is False if the session is only inferred.
    """

    pid: int
    session_id: str
    since: float = inf
    sure: bool = True


def noted_at(path: Path, said: object = None, parts: int = 1) -> float:
    """Return a note's time in seconds since the epoch: from `said`, in 1/`parts` seconds, else from the note's file."""
    if isinstance(said, int | float):
        return said / parts
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@lru_cache(maxsize=1024)  # a list of processes names few, and each agent asks for all of them
def _program(word: str) -> str:
    path = PurePath(word)
    return path.parent.parent.name if path.parent.name == "versions" else path.stem


class AgentProcesses(AgentFacet):
    """Finds the processes of one agent, and the sessions that they have open."""

    #: The words that begin a fork.
    forks: tuple[str, ...] = ()

    def runs(self, words: Sequence[str]) -> bool:
        """Return True if a process with the command line `words` is the agent."""
        return bool(words) and _program(_script_of(words)) == self.agent

    def resumes(self, session_id: str, words: Sequence[str]) -> bool:
        """Return True if an agent's process with the command line `words` resumes the session."""
        options = words[: words.index("--")] if "--" in words else words  # behind that is what it was asked
        return session_id in options and set(options).isdisjoint(self.forks)

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """Yield the agent's own notes about processes that have, or had, this session open."""
        return iter(())

    def near(self, log: Path, processes: Mapping[int, Running]) -> str:
        """Return a sentence about a process that may have `log` open, although no note says so; empty without one."""
        return ""

    def hold(self, session_id: str) -> int | None:
        """Take the agent's own lock of a session, and return its file descriptor, which the caller closes.

        Return `None` if the agent has no locks.

        Raises:
            ForkRefused: Another process holds the lock.
        """
        return None

    def queue(self, session_id: str, text: str, running: Callable[[], Mapping[int, Running]]) -> tuple[str, ...]:
        """Return the program's arguments that send `text` to a running session; empty if it has no such command."""
        return ()

    def inside(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> dict[int, bool]:
        """Return the ids of running processes that have a session open, each with True if that is certain.

        If a note names a process, the command lines of the process and of its parent are ignored: they may name an
        earlier session, since ``/clear`` begins another one in the same process.
        """
        noted: dict[int, ProcessNote] = {}
        for note in sorted(self.notes(session_id, log, processes), key=lambda one: one.since):
            one = processes.get(note.pid)
            # It is enough that the program's path contains the agent's name.
            if one and one.born <= note.since + START_SECONDS and one.words and self.agent in _script_of(one.words):
                noted[note.pid] = note
        spoken_for = {*noted, *(processes[pid].parent for pid in noted)}
        found = {pid: note.sure for pid, note in noted.items() if note.session_id == session_id}
        for pid, one in processes.items():
            if pid not in spoken_for and self.runs(one.words) and self.resumes(session_id, one.words):
                found[pid] = True
        return found


def _script_of(words: Sequence[str]) -> str:
    """Return the program in a command line; for an interpreter such as node, the script that it runs."""
    if _program(words[0]) not in _INTERPRETERS:
        return words[0]
    return next((word for word in words[1:] if not word.startswith("-")), words[0])
