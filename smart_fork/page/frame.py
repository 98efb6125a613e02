"""What stands around every page: how many workers ask, how many sessions are known, how fresh and able the index is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from indexer.runs import Freshness
from indexer.shapes import dataclass
from smart_fork.errors import SmartForkError
from smart_fork.page.board import WorkerBoard
from smart_fork.retrieval.index_access import opened

ModelState = Literal["ready", "loading", "absent"]


@dataclass(frozen=True, slots=True)
class ServiceState:
    """How the service that shows the page is: its model, and how indexing goes where it does that by itself."""

    model: ModelState = "ready"
    indexing: Freshness | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """The rail's badge and the last line of a page. Without an index it says so."""

    asks: int
    running: int
    sessions: int
    updated_at: str
    service: ServiceState
    problem: str = ""

    @property
    def fresh(self) -> str:
        """When everything was as the logs are, as far as it is known."""
        indexing = self.service.indexing
        if indexing is not None and indexing.state == "idle" and not indexing.pending_logs and not indexing.failing:
            runs = (indexing.last_run, indexing.last_change)
            return max((self.updated_at, *(run.started_at for run in runs if run is not None)))
        return self.updated_at

    @property
    def doing(self) -> str:
        """What the indexer is at; empty where it rests."""
        indexing = self.service.indexing
        if indexing is None:
            return ""
        return "indexing fails" if indexing.failing else indexing.doing


def framed(board: WorkerBoard, state: Callable[[], ServiceState]) -> Frame:
    """The frame of now."""
    workers = board.view()
    sessions, updated_at, problem = 0, "", ""
    try:
        with opened() as store:
            sessions, updated_at = store.session_count(), store.meta("updated_at")
    except SmartForkError as error:
        problem = error.message
    return Frame(workers.asks, workers.running, sessions, updated_at, state(), problem)
