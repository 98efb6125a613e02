"""``status``."""

from __future__ import annotations

from collections.abc import Sequence

from smart_fork.cli.output import out, plain, printed_as_json
from smart_fork.errors import joined
from smart_fork.overview import IndexOverview, RecallOverview, ServiceOverview, Trouble, WorkerOverview, overview
from smart_fork.retrieval import covered
from smart_fork.retrieval.status import in_words, when_next


def status() -> None:
    """One screen: what is indexed and how fresh it is, the service and its next run, the workers, what went wrong."""
    state = overview()
    if printed_as_json(state):
        return
    problem = state.workers_problem
    workers = [("workers", joined(problem.error, problem.hint))] if problem else _workers(state.workers)
    rows = (*_index(state.index), *_service(state.service), *_recall(state.recall), *workers)
    for name, text in rows:
        out.named(plain(name, "bold"), plain(text), 10)


def _index(index: IndexOverview | Trouble) -> list[tuple[str, str]]:

    if isinstance(index, Trouble):
        return [("index", joined(index.error, index.hint))]
    shares = covered.in_words(index.covered)
    done = f"{index.embedded:,} of {index.chunks:,} passages by meaning ({shares})"
    unread = f", {index.unread_logs:,} logs to read" if index.unread_logs else ""
    broken = f", {index.broken_lines:,} broken lines (smart-fork index status)" if index.broken_lines else ""
    aside = [("", f"it was damaged, and kept as {path}: delete it when you like") for path in index.set_aside]
    return [
        ("index", f"{index.sessions:,} sessions of {index.logs:,} logs, {done}{unread}{broken}"),
        ("", f"{index.bytes / 1e6:.1f} MB, last changed {index.updated_at or 'never'}"),
        ("", f"last run {in_words(index.last_run)}; next {when_next(index.next_run)}"),
        *aside,
    ]


def _service(service: ServiceOverview) -> list[tuple[str, str]]:
    if not service.running:
        return [("service", f"not running: {service.hint}")]
    if service.status is None:
        return [("service", f"process {service.pid}: {service.error}")]
    memory = f", {service.memory_bytes / 1e6:.0f} MB" if service.memory_bytes else ""
    rows = [("service", f"{service.url}, process {service.pid} since {service.started}{memory}")]
    if change := service.status.change:
        rows.append(("", f"restart pending: {change}, when it is idle"))
    indexing = service.status.indexing
    if indexing.get("state") == "off":
        return [*rows, ("indexing", "only on demand: SMART_FORK_INDEXING is not true for the service")]
    doing = f" ({indexing['doing']})" if indexing.get("doing") else ""
    rows.append(("indexing", f"{indexing.get('state')}{doing}, next run {indexing.get('next_run') or 'unknown'}"))
    if indexing.get("last_error"):
        rows.append(("", f"last error, {indexing.get('last_error_at') or None}: {indexing['last_error']}"))
    return rows


def _recall(recall: RecallOverview) -> list[tuple[str, str]]:
    if not recall.on:
        return []
    spoke = f"suggested a session in {recall.told:,} of {recall.sessions:,} new sessions"
    spoke += f", too late in {recall.late:,}" if recall.late else ""
    spoke += f", followed in {recall.followed:,}" if recall.followed else ""
    if recall.edits_told or recall.edits_late:
        spoke += f"; named an exchange before {recall.edits_told:,} edit{'s' * (recall.edits_told != 1)}"
        spoke += f", too late for {recall.edits_late:,}" if recall.edits_late else ""
        spoke += f", followed {recall.edits_followed:,}" if recall.edits_followed else ""
    if recall.errors_told or recall.errors_late:
        spoke += f"; named what ended {recall.errors_told:,} error{'s' * (recall.errors_told != 1)}"
        spoke += f", too late for {recall.errors_late:,}" if recall.errors_late else ""
        spoke += f", followed {recall.errors_followed:,}" if recall.errors_followed else ""
    return [("recall", f"on for {' and '.join(recall.on)}, {spoke}")]


def _workers(workers: Sequence[WorkerOverview]) -> list[tuple[str, str]]:
    if not workers:
        return [("workers", "none")]
    rows = []
    for number, one in enumerate(workers):
        asks = f": {one.waiting_for.splitlines()[0]}" if one.waiting_for else ""
        doing = one.status or one.state
        rows.append(("" if number else "workers", f"{one.worker_id}  {one.name}  {doing}{asks}  {one.cwd}"))
    return rows
