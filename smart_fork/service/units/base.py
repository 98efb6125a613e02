"""What keeps the service running: one file a system."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from indexer.shapes import dataclass
from smart_fork.service.units.settings import Settings


@dataclass(frozen=True, slots=True)
class State:
    """How the service is, as the system sees it. `ended` says how it failed last; empty where nobody knows."""

    loaded: bool = False
    running: bool = False
    pid: int | None = None
    ended: str = ""


class Supervisor(Protocol):
    """A system that starts jobs and keeps them running."""

    @property
    def name(self) -> str:
        """`launchd` or `systemd`."""
        ...

    @property
    def path(self) -> Path:
        """The file that it reads."""
        ...

    def written(self, settings: Settings) -> bytes:
        """The content of that file."""
        ...

    def reach(self) -> None:
        """See whether it can start something here at all.

        Raises:
            SmartForkError: it does not answer.
        """
        ...

    def install(self, content: bytes) -> list[str]:
        """Write the file and start the service, instead of one that runs; gives what a person should know.

        Raises:
            SmartForkError: it could not be started.
        """
        ...

    def uninstall(self) -> None:
        """Stop the service and remove the file. Nothing installed is no error.

        Raises:
            SmartForkError: it could not be stopped; the file is still there.
        """
        ...

    def state(self) -> State:
        """How the service is now."""
        ...
