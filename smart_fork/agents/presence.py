"""Recognizes running agents, and their sessions, if smart-fork did not start them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import PurePath

#: Programs that run scripts.
_INTERPRETERS = {"node", "bun"}


@lru_cache(maxsize=1024)  # a list of processes names few, and each agent asks for all of them
def _program(word: str) -> str:
    return PurePath(word).stem


class Presence:
    """The processes of one agent: the names of its `programs`, and the words (`forks`) that begin a fork."""

    def __init__(self, programs: Collection[str], forks: Collection[str] = ()) -> None:
        self.programs, self.forks = frozenset(programs), frozenset(forks)

    def runs(self, words: Sequence[str]) -> bool:
        """Return whether a process with these words is the agent."""
        names = [_program(word) for word in words[:2]]
        if names and names[0] in _INTERPRETERS:
            names.pop(0)
        return bool(names) and names[0] in self.programs

    def goes_on_in(self, session_id: str, words: Sequence[str]) -> bool:
        """Return whether an agent with these words resumes that session."""
        options = words[: words.index("--")] if "--" in words else words  # behind that is what it was asked
        return session_id in options and not self.forks & set(options)

    def noted(self, session_id: str) -> Collection[int]:
        """Return the process ids that the agent itself noted for that session. Some may have ended."""
        return ()
