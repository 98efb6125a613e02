"""By what a running agent is known, and in which session it is: one that we did not start leaves no note with us."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePath

#: What runs programs that are scripts.
_INTERPRETERS = {"node", "bun"}


class Presence:
    """Processes of one agent: what its `programs` are called, and the `forks`, words that only begin from a session."""

    def __init__(self, programs: Collection[str], forks: Collection[str] = ()) -> None:
        self.programs, self.forks = frozenset(programs), frozenset(forks)

    def runs(self, words: Sequence[str]) -> bool:
        """Whether a process with these words is the agent."""
        names = [PurePath(word).stem for word in words[:2]]
        if names and names[0] in _INTERPRETERS:
            names.pop(0)
        return bool(names) and names[0] in self.programs

    def goes_on_in(self, session_id: str, words: Sequence[str]) -> bool:
        """Whether an agent with these words was told to go on in that session."""
        options = words[: words.index("--")] if "--" in words else words  # behind that is what it was asked
        return session_id in options and not self.forks & set(options)

    def noted(self, session_id: str) -> Collection[int]:
        """The numbers of processes that the agent itself has written down for that session; some may have ended."""
        del session_id
        return ()
