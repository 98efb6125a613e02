"""The state of the service, as launchd or systemd sees it."""

from __future__ import annotations

from indexer.shapes import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """The state. `ended` says how the service failed last, and is empty if that is unknown."""

    loaded: bool = False
    running: bool = False
    pid: int | None = None
    ended: str = ""
