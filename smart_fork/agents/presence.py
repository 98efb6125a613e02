"""Recognizes running agents, and their sessions, if smart-fork did not start them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePath

#: Programs that run scripts.
_INTERPRETERS = {"node", "bun"}


class Presence:
    """The processes of one agent: the names of its `programs`, and the words (`forks`) that begin a fork."""

    def __init__(self, programs: Collection[str], forks: Collection[str] = ()) -> None:
        self.programs, self.forks = frozenset(programs), frozenset(forks)

    def runs(self, words: Sequence[str]) -> bool:
        """Return whether a process with these words is the agent."""
        names = [PurePath(word).stem for word in words[:2]]
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
