"""What a log says of how its session began, of agents whose new sessions have ids that nobody knows beforehand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from pathlib import Path

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName


@dataclass(frozen=True, slots=True)
class Birth:
    """Whose beginning it is, of which session it is a fork, where it was begun, and when (seconds since the epoch)."""

    session_id: str
    parent_id: str | None
    cwd: str
    born: float


class Births(ABC):
    """How the sessions of one agent began."""

    name: AgentName

    @abstractmethod
    def birth(self, log: Path) -> Birth | None:
        """What the beginning of a log says; `None` where it does not, or not yet, or where the log cannot be read."""

    @abstractmethod
    def was_asked(self, log: Path, prompt: str) -> bool:
        """Whether somebody has asked exactly that in this log, apart from blanks around it.

        Raises:
            OSError: it cannot be read.
        """


def moment(text: object) -> float | None:
    """Seconds since the epoch, of a time with ``Z`` or with an offset."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
