"""The command ``status``: index, service, recall and workers on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from indexer.environment import Setting
from indexer.errors import joined
from indexer.json_values import Value, rare, record, value
from indexer.safe_files import index_db, state_home
from indexer.store.damage import kept
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.index import NAME_WIDTH, index_rows
from smart_fork.cli.output import out, printed_as_json
from smart_fork.cli.service.client import ServiceStatus, find_service
from smart_fork.cli.service.instance import holder
from smart_fork.cli.workers import in_a_word
from smart_fork.display_text import ago
from smart_fork.errors import IndexUnavailable, RegistryUnavailable
from smart_fork.finding.index_status import IndexStatus, index_status
from smart_fork.hooks import hint_switch
from smart_fork.workers.observation import list_workers
from smart_fork.workers.registry_path import has_registry
from smart_fork.workers.results import WorkerState


@value
class UnreadablePart(Value):
    """A part of ``status``, such as the index, that cannot be read: the error and the next step."""

    error: str
    hint: str


#: The keys of the index's state that ``status`` shows. ``index status`` shows all, such as broken logs.
_OF_INDEX = (
    "logs", "unread_logs", "sessions", "chunks", "embedded", "covered", "complete", "updated_at", "bytes", "model",
    "last_run", "next_run", "broken_lines", "set_aside",
)  # fmt: skip
_OF_WORKER = ("worker_id", "name", "agent_type", "kind", "state", "status", "waiting_for", "cwd")


@record
class IndexOverview(IndexStatus):
    """The state of the index in ``status``. `set_aside` lists damaged index files that smart-fork has renamed."""

    set_aside: tuple[str, ...] = rare(())

    def as_json(self) -> dict[str, Any]:
        """Return only those keys of the index's state that ``status --json`` prints."""
        told = super().as_json()
        return {name: told[name] for name in _OF_INDEX if name in told}


@record
class ServiceOverview(Value):
    """The service (the process that keeps the index fresh) in ``status``.

    `status` is its own report. `error` is set if its process runs but does not answer, `hint` if no process runs.
    """

    running: bool
    hint: str = rare("")
    url: str = rare("")
    pid: int = rare(0)
    started: str = rare("")
    error: str = rare("")
    status: ServiceStatus | None = rare()
    memory_bytes: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return this answer as JSON, with the keys of the service's own report on the top level."""
        told = super().as_json()
        said, memory = told.pop("status", None), told.pop("memory_bytes")
        return told if said is None else {**told, **said, "memory_bytes": memory}


@value
class RecallOverview(Value):
    """Recall in ``status``: the agents with recall `on`, and counts of hints (lines that name past sessions).

    `sessions` counts new sessions in which a hint was looked up. Of the hints, `told` were given, `late` came too late,
    and `followed` made the agent ask for the named session. The prefix ``edits_`` or ``errors_`` means hints at edits
    or errors, no prefix those at first prompts.
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
    """A running worker (an agent that smart-fork started) in ``status``."""

    def as_json(self) -> dict[str, Any]:
        """Return only those keys of the worker's state that ``status --json`` prints."""
        told = super().as_json()
        return {name: told[name] for name in _OF_WORKER}


@value
class Overview(Value):
    """The answer of ``status``. If the workers cannot be listed, `workers_problem` says why."""

    home: str
    index: IndexOverview | UnreadablePart
    service: ServiceOverview
    recall: RecallOverview
    workers: tuple[WorkerOverview, ...] = ()
    workers_problem: UnreadablePart | None = rare()


def overview() -> Overview:
    """Return the answer of ``status``, without reading a session log or starting a process."""
    seen = Overview(str(state_home()), _index(), _service(), _recall())
    try:
        return replace(seen, workers=_workers())
    except RegistryUnavailable as error:
        return replace(seen, workers_problem=UnreadablePart(error.message, error.hint))


def _index() -> IndexOverview | UnreadablePart:
    try:
        known = index_status()
    except IndexUnavailable as error:
        return UnreadablePart(error.message, error.hint)
    aside = tuple(str(path) for path in kept(index_db()))
    return IndexOverview(**{one.name: getattr(known, one.name) for one in fields(known)}, set_aside=aside)


def _service() -> ServiceOverview:
    service = find_service()
    if service is not None:
        at = service.address
        known = ServiceOverview(running=True, url=at.url, pid=at.pid, started=at.started, status=service.status)
        return replace(known, memory_bytes=_memory(at.pid))
    process = None if Setting.SERVICE.is_off() else holder()
    if process:
        error = "It is just starting, or it hangs: smart-fork service stop"
        return ServiceOverview(running=True, pid=process, error=error)
    return ServiceOverview(running=False, hint="smart-fork serve, or smart-fork service install")


def _recall() -> RecallOverview:
    on = tuple(one.name for one in READERS if hint_switch.is_on(one.name))
    prompts, edits, errors = map(hint_switch.hint_counts, hint_switch.NOTED)
    return RecallOverview(
        on, *hint_switch.prompt_hint_counts(), edits.told, edits.late, prompts.followed, edits.followed, *errors
    )


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


def status() -> None:
    """Show index, service, workers and recent errors on one screen."""
    state = overview()
    if printed_as_json(state):
        return
    problem = state.workers_problem
    workers = [("workers", joined(problem.error, problem.hint))] if problem else _workers_rows(state.workers)
    rows = (*_index_rows(state.index), *_service_rows(state.service), *_recall_rows(state.recall), *workers)
    for name, text in rows:
        out.named(name, text, NAME_WIDTH)


def _index_rows(index: IndexOverview | UnreadablePart) -> list[tuple[str, str]]:
    if isinstance(index, UnreadablePart):
        return [("index", joined(index.error, index.hint))]
    aside = [("", f"it was damaged, and kept as {path}: delete it when you like") for path in index.set_aside]
    return [*index_rows(index), *aside]


def _service_rows(service: ServiceOverview) -> list[tuple[str, str]]:
    if not service.running:
        return [("service", f"not running: {service.hint}")]
    if service.status is None:
        return [("service", f"process {service.pid}: {service.error}")]
    memory = f", {service.memory_bytes / 1e6:.0f} MB" if service.memory_bytes else ""
    rows = [("service", f"started {ago(service.started)} at {service.url}{memory}")]
    if change := service.status.change:
        rows.append(("", f"restart pending: {change}, when it is idle"))
    indexing = service.status.indexing
    if indexing.get("state") == "off":
        return [*rows, ("", "indexes only when asked: SMART_FORK_INDEXING is not true for it")]
    rows.append(("", indexing.get("doing") or "reads new sessions by itself"))
    if indexing.get("last_error"):
        rows.append(("", f"failed {ago(indexing.get('last_error_at'))}: {indexing['last_error']}"))
    return rows


def _recall_rows(recall: RecallOverview) -> list[tuple[str, str]]:
    if not recall.on:
        return []
    spoke = f"suggested a session in {recall.told:,} of {recall.sessions:,} new sessions"
    spoke += f", too late in {recall.late:,}" if recall.late else ""
    spoke += f", followed in {recall.followed:,}" if recall.followed else ""
    for what, told, late, followed in (
        ("named an exchange before {} edit", recall.edits_told, recall.edits_late, recall.edits_followed),
        ("named what ended {} error", recall.errors_told, recall.errors_late, recall.errors_followed),
    ):
        if told or late:
            spoke += f"; {what.format(f'{told:,}')}{'s' * (told != 1)}"
            spoke += f", too late for {late:,}" if late else ""
            spoke += f", followed {followed:,}" if followed else ""
    return [("recall", f"on for {' and '.join(recall.on)}, {spoke}")]


def _workers_rows(workers: Sequence[WorkerOverview]) -> list[tuple[str, str]]:
    if not workers:
        return [("workers", "none running")]
    rows = []
    for number, one in enumerate(workers):
        asks = f": {one.waiting_for.splitlines()[0]}" if one.waiting_for else ""
        rows.append(("" if number else "workers", f"{in_a_word(one):<8}  {one.name}  {one.worker_id}{asks}"))
    return rows
