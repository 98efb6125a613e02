"""Recognizes an agent's processes, and tells in which session each of them is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path, PurePath
from typing import NamedTuple

from smart_fork.agents.agent import AgentFacet
from smart_fork.system.processes import Running

#: Programs that run scripts.
_INTERPRETERS = {"node", "bun"}
#: A process that began later after a note was made has only got the number of the one that made it.
START_SECONDS = 60.0


class ProcessNote(NamedTuple):
    """A process and the session that it has open, as its agent notes it, and when that was, in seconds since the epoch.

    It is not `sure` if it is concluded: the process may have left that session for another one.
    """

    pid: int
    session_id: str
    since: float = inf
    sure: bool = True


def noted_at(path: Path, said: object = None, parts: int = 1) -> float:
    """Return when a note was made: as it says itself, in `parts` of a second, or as its file does."""
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


class Presence(AgentFacet):
    """The processes of one agent, whose program has its name."""

    #: The words that begin a fork.
    forks: tuple[str, ...] = ()

    def runs(self, words: Sequence[str]) -> bool:
        """Return whether a process with these words is the agent."""
        return bool(words) and _program(_script(words)) == self.agent

    def goes_on_in(self, session_id: str, words: Sequence[str]) -> bool:
        """Return whether an agent with these words resumes that session."""
        options = words[: words.index("--")] if "--" in words else words  # behind that is what it was asked
        return session_id in options and set(options).isdisjoint(self.forks)

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """Yield the processes that are in that session or have left it for another, as the agent notes it itself.

        Some may have ended.
        """
        return iter(())

    def near(self, log: Path, processes: Mapping[int, Running]) -> str:
        """Say which process may write to that log without being in its session; empty if none may."""
        return ""

    def hold(self, session_id: str) -> int | None:
        """Take the agent's own lock of that session; return its descriptor for the caller to close, or `None`.

        Raises:
            ForkRefused: another process holds the lock.
        """
        return None

    def queue(self, session_id: str, text: str, running: Callable[[], Mapping[int, Running]]) -> tuple[str, ...]:
        """Return the verb and words with which its program takes a message for that session; empty if that would not be
        delivered now.
        """
        return ()

    def inside(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> dict[int, bool]:
        """Return the living processes that are in that session, each with whether that is sure.

        What a process notes counts more than the words that it was started with: ``/clear`` and the like begin another
        session. One that only starts the process with the note is not asked.
        """
        noted: dict[int, ProcessNote] = {}
        for note in sorted(self.notes(session_id, log, processes), key=lambda one: one.since):
            one = processes.get(note.pid)
            if one and one.born <= note.since + START_SECONDS and self._may_be(one.words):
                noted[note.pid] = note
        spoken_for = {*noted, *(processes[pid].parent for pid in noted)}
        found = {pid: note.sure for pid, note in noted.items() if note.session_id == session_id}
        for pid, one in processes.items():
            if pid not in spoken_for and self.runs(one.words) and self.goes_on_in(session_id, one.words):
                found[pid] = True
        return found

    def _may_be(self, words: Sequence[str]) -> bool:
        """Return True if a note's process may still be the agent: its command can differ from the program's name."""
        return bool(words) and self.agent in _script(words)


def _script(words: Sequence[str]) -> str:
    """Return a process's program, or the script of an interpreter."""
    if _program(words[0]) not in _INTERPRETERS:
        return words[0]
    return next((word for word in words[1:] if not word.startswith("-")), words[0])
