"""The beginning of a session by its log, for agents whose new session ids are not known beforehand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from indexer.shapes import dataclass
from indexer.unchecked import seconds_in


@dataclass(frozen=True, slots=True)
class Birth:
    """A session's beginning: its id, its parent's id, its directory, and its time in seconds since the epoch."""

    session_id: str
    parent_id: str | None
    cwd: str
    born: float


class Births(ABC):
    """Reads the beginnings of one agent's sessions."""

    @abstractmethod
    def birth(self, log: Path) -> Birth | None:
        """Return the session's beginning; `None` if the log does not tell it (yet), or cannot be read."""

    @abstractmethod
    def was_asked(self, log: Path, prompt: str) -> bool:
        """Return whether the log has exactly this prompt, apart from surrounding blanks.

        Raises:
            OSError: The log cannot be read.
        """


def moment(text: object) -> float | None:
    """Return a time with ``Z`` or an offset in seconds since the epoch; `None` if it is no time."""
    return seconds_in(str(text))
