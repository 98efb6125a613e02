"""What the service is made of: one model, the MCP server, the page, what keeps the index fresh."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.types import ASGIApp

from indexer.freshener import Freshener
from indexer.models import configured_embedder
from indexer.schedule import trigger_of
from indexer.settings import INDEX_CRON, INDEXING
from smart_fork.agents import READERS
from smart_fork.cuts import snapshots
from smart_fork.excise import erasure
from smart_fork.hooks import switch
from smart_fork.page import views
from smart_fork.page.entry import Entries
from smart_fork.page.frame import ServiceState
from smart_fork.page.renderer import stranger
from smart_fork.page.sent_forms import PageForms
from smart_fork.page.visits import Visits
from smart_fork.retrieval.answer import Unsearched
from smart_fork.retrieval.background import MODEL_SECONDS, engine_beside
from smart_fork.retrieval.finder import find
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.renewal import Renewal
from smart_fork.retrieval.request import FindRequest
from smart_fork.retrieval.shared import Shared
from smart_fork.retrieval.upkeep import Engine
from smart_fork.server import create_server, wants_everything
from smart_fork.service import app
from smart_fork.service.guard import Doors, Guard
from smart_fork.service.token import Token
from smart_fork.workers.recovery import recover


class Entrance:
    """Authentication of the service at `host`, a name with a port: the token, and the cookies, codes and forms derived
    from it. A new token invalidates all of them. It keeps its files in `folder`.
    """

    def __init__(self, folder: Path, host: str) -> None:
        self.token = Token(self._changed)
        # Browsers give a cookie to every port of a machine: each service has a name of its own for it.
        self.visits = Visits(f"smart-fork-{host.rpartition(':')[2]}", folder / "visits.json", self.token)
        self.entries = Entries(folder, f"http://{host}/")
        self.forms: PageForms[Any] = PageForms(self.token, folder / "forms")
        self._guards: list[Guard] = []

    def guard(self, app: ASGIApp, names: Sequence[str], doors: Doors) -> Guard:
        """Return `app` behind a guard that accepts these host names."""
        made = Guard(app, token=self.token, hosts=names, doors=doors, cookies=self.visits, stranger=stranger)
        self._guards.append(made)
        return made

    def hang_up(self) -> None:
        """Close all streams."""
        for guard in self._guards:
            guard.hang_up()

    def _changed(self) -> None:
        self.visits.end()
        self.hang_up()
        self.entries.end()


#: What is asked to see whether questions are answered.
QUESTION = FindRequest("is anybody there", agent_type="all", all_projects=True, limit=1)

#: So long the end waits for an index run: what it has done by then is kept, and the next one goes on from there.
RUN_SECONDS = 3600.0

#: So long it waits for the log that is being read; the whole end is to take no more than twice as long.
STOP_SECONDS = 1.0

log = logging.getLogger(__name__)


class ServiceParts:
    """All parts of one service. Nothing runs before `start`. `restart` says which version it is going to become."""

    def __init__(self, restart: Callable[[], Mapping[str, str] | None] = lambda: None) -> None:
        self.model = Shared(configured_embedder(background=True), MODEL_SECONDS)
        self._restart = restart

    def application(self, entrance: Entrance) -> tuple[Starlette, Doors]:
        """What answers, and which of its addresses are for whom."""
        page = views.Page(self._engine, entrance.forms, entrance.entries, entrance.visits, self._state)
        work = app.Work(self.model, self._question, self._status, self._restart)
        return app.application(
            create_server(self.model, everything=wants_everything(os.environ)),
            work,
            page,
        )

    def start(self) -> None:
        """Load the model, see to workers and old snapshots, and, if that is wanted, keep the index fresh."""
        self.model.start()
        recover()
        with suppress(OSError):
            snapshots.prune(datetime.now(UTC))
        switch.forget()
        # It waits for whoever is indexing, and nobody waits for it.
        threading.Thread(target=erasure.settle, name="erasing", daemon=True).start()
        if INDEXING.is_on():
            trigger = trigger_of(os.environ.get(INDEX_CRON))
            self.model.indexer = Freshener(READERS, self.model, trigger, opened=opened, after=Renewal().soon)
            self.model.indexer.start()
        else:
            log.warning("smart_fork indexes only when it is asked: SMART_FORK_INDEXING is not set to true")

    def stop(self) -> None:
        """End what `start` began, and what embeds, in the middle of it: what was embedded before is kept."""
        if self.model.indexer is not None:
            self.model.indexer.stop(0.0)
        self.model.close()
        if self.model.indexer is not None:
            self.model.indexer.stop(STOP_SECONDS)

    def idle(self, waited: float) -> bool:
        """Whether no index run would be cut short, now that one has waited so many seconds for its end."""
        return self.model.indexer is None or waited >= RUN_SECONDS or self.model.indexer.status().state != "indexing"

    def _engine(self) -> Engine:
        return engine_beside(self.model)

    def _question(self) -> None:
        answer = find(QUESTION, self._engine())
        if isinstance(answer, Unsearched):
            raise RuntimeError(answer.message)  # noqa: TRY004 - no wrong type, but no index

    def _state(self) -> ServiceState:
        return ServiceState(self.model.state, self.model.indexer.status() if self.model.indexer is not None else None)

    def _status(self) -> dict[str, object]:
        return self.model.indexer.status().as_json() if self.model.indexer is not None else {"state": "off"}
