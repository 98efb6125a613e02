"""One screen: what is indexed and how fresh, the service and its next run, the workers, what went wrong last."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from indexer.damage import kept
from indexer.paths import index_db, state_home
from indexer.settings import SERVICE
from indexer.values import Value, rare, record, value
from smart_fork.agents.readers import READERS
from smart_fork.errors import IndexUnavailable, RegistryUnavailable
from smart_fork.hooks import ASKED, EDITS, ERRORS, switch
from smart_fork.registry.file import has_registry
from smart_fork.retrieval.index_answers import IndexStatus
from smart_fork.retrieval.status import index_status
from smart_fork.service.client import ServiceStatus, find_service
from smart_fork.service.lock import holder
from smart_fork.workers.roster import list_workers
from smart_fork.workers.state import WorkerState


@value
class Trouble(Value):
    """Why something cannot be shown, and what to do."""

    error: str
    hint: str


#: Where its logs are broken is `index status`'s to say.
_OF_INDEX = (
    "logs", "unread_logs", "sessions", "chunks", "embedded", "covered", "complete", "updated_at", "bytes", "model",
    "last_run", "next_run", "broken_lines", "set_aside",
)  # fmt: skip
_OF_WORKER = ("worker_id", "name", "agent_type", "kind", "state", "status", "waiting_for", "cwd")


@record
class IndexOverview(IndexStatus):
    """What the index holds."""

    set_aside: tuple[str, ...] = rare(())

    def as_json(self) -> dict[str, Any]:
        """Return JSON values, of the index in short."""
        told = super().as_json()
        return {name: told[name] for name in _OF_INDEX if name in told}


@record
class ServiceOverview(Value):
    """The service with its own status, or with an `error` if it does not answer. Without a service only `hint`."""

    running: bool
    hint: str = rare("")
    url: str = rare("")
    pid: int = rare(0)
    started: str = rare("")
    error: str = rare("")
    status: ServiceStatus | None = rare()
    memory_bytes: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return JSON values, with the service's own status among them."""
        told = super().as_json()
        said, memory = told.pop("status", None), told.pop("memory_bytes")
        return told if said is None else {**told, **said, "memory_bytes": memory}


@value
class RecallOverview(Value):
    """For which agents it is on, and what came of it: of `sessions`, exchanges named before edits, ends of errors.

    Where an answer came too late it counts as late, and not as told. Followed are sessions that were asked for by the
    session that was told of them.
    """

    on: tuple[str, ...]
    sessions: int
    told: int
    late: int = rare(0)
    edits_told: int = rare(0)
    edits_late: int = rare(0)
    followed: int = rare(0)
    edits_followed: int = rare(0)
    errors_told: int = rare(0)
    errors_late: int = rare(0)
    errors_followed: int = rare(0)


class WorkerOverview(WorkerState):
    """A worker that runs."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values, of the worker in short."""
        told = super().as_json()
        return {name: told[name] for name in _OF_WORKER}


@value
class Overview(Value):
    """The state of all parts. `workers_problem` says why the workers cannot be listed."""

    home: str
    index: IndexOverview | Trouble
    service: ServiceOverview
    recall: RecallOverview
    workers: tuple[WorkerOverview, ...] = ()
    workers_problem: Trouble | None = rare()


def overview() -> Overview:
    """The state of all parts. Nothing is read or started for it."""
    seen = Overview(str(state_home()), _index(), _service(), _recall())
    try:
        return replace(seen, workers=_workers())
    except RegistryUnavailable as error:
        return replace(seen, workers_problem=Trouble(error.message, error.hint))


def _index() -> IndexOverview | Trouble:
    try:
        known = index_status()
    except IndexUnavailable as error:
        return Trouble(error.message, error.hint)
    aside = tuple(str(path) for path in kept(index_db()))
    return IndexOverview(**{one.name: getattr(known, one.name) for one in fields(known)}, set_aside=aside)


def _service() -> ServiceOverview:
    service = find_service()
    if service is not None:
        at = service.address
        known = ServiceOverview(running=True, url=at.url, pid=at.pid, started=at.started, status=service.status)
        return replace(known, memory_bytes=_memory(at.pid))
    process = None if SERVICE.is_off() else holder()
    if process:
        return ServiceOverview(
            running=True, pid=process, error="It is just starting, or it hangs: smart-fork service stop"
        )
    return ServiceOverview(running=False, hint="smart-fork serve, or smart-fork service install")


def _recall() -> RecallOverview:
    on = tuple(one.name for one in READERS if switch.is_on(one.name))
    edits = switch.said(EDITS)
    return RecallOverview(
        on, *switch.asked(), switch.late(), edits.told, edits.late, switch.said(ASKED).followed, edits.followed,
        *switch.said(ERRORS),
    )  # fmt: skip


def _memory(pid: int) -> int | None:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def _workers() -> tuple[WorkerOverview, ...]:
    if not has_registry():
        return ()
    return tuple(WorkerOverview.more(one) for one in list_workers(None) if one.worker_id)
