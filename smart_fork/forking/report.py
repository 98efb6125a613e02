"""What is said about a worker that was started."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from indexer.transcripts.model import Agent
from smart_fork.agents.plan import ForkPlan, shell_command
from smart_fork.forking.confirmation import CONFIRM_SECONDS, Confirmation
from smart_fork.places.base import Started
from smart_fork.registry import Kind, Worker


@dataclass(frozen=True, slots=True)
class Launched:
    """A worker that was started; of a dry run, only its plan. `session_id` is `None` where it is not known yet."""

    plan: ForkPlan
    place: str
    worker: Worker | None = None
    started: Started = field(default_factory=Started)
    session_id: str | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ForkedSession:
    """A fork that was started (or, of a dry run, would be).

    `session_name` is the worker's name, `resume_session_id` the session that was forked, `new_session_id` the
    fork's own (`None` where the agent had not told it in time), `command` one line for display, `attach` what shows
    the worker.
    """

    session_name: str
    worker_id: str
    terminal_id: str | None
    resume_session_id: str
    new_session_id: str | None
    command: str
    cwd: str
    place: str
    log: str | None = None
    attach: str = ""
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The fork as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A worker that was started. `session_id` is its own, `source_session_id` that of what it forked or goes on with.

    `worktree` and `branch` are those that were made for it.
    """

    worker_id: str
    session_id: str | None
    agent_type: Agent
    name: str
    kind: Kind
    source_session_id: str | None
    cwd: str
    worktree: str | None
    branch: str | None
    place: str
    terminal_id: str | None
    log: str | None
    attach: str
    command: str
    warnings: list[str]

    def as_json(self) -> dict[str, Any]:
        """The worker as JSON values."""
        return asdict(self)


def as_fork(launched: Launched) -> ForkedSession:
    """A fork in the words of a fork."""
    plan, worker, started = launched.plan, launched.worker, launched.started
    return ForkedSession(
        session_name=worker.name if worker else plan.name,
        worker_id=worker.id if worker else "",
        terminal_id=started.terminal_id,
        resume_session_id=plan.source_session_id,
        new_session_id=launched.session_id or plan.new_session_id,
        command=shell_command(plan),
        cwd=str(plan.cwd),
        place=launched.place,
        log=str(started.log) if started.log else None,
        attach=started.attach,
        warnings=launched.warnings,
    )


def as_worker(launched: Launched) -> StartedWorker:
    """Any worker that was started."""
    if launched.worker is None:
        raise TypeError("A dry run has no worker")
    return describe(launched.worker, shell_command(launched.plan), launched.warnings)


def describe(worker: Worker, command: str, warnings: list[str]) -> StartedWorker:
    """A worker as the registry knows it."""
    return StartedWorker(
        worker_id=worker.id,
        session_id=worker.session_id,
        agent_type=worker.agent,
        name=worker.name,
        kind=worker.kind,
        source_session_id=worker.source_session_id or None,
        cwd=worker.cwd,
        worktree=worker.worktree,
        branch=worker.branch,
        place=worker.place,
        terminal_id=worker.terminal_id,
        log=worker.log_path,
        attach=worker.attach,
        command=command,
        warnings=warnings,
    )


def unconfirmed(plan: ForkPlan, started: Started, seen: Confirmation) -> str:
    """Why nothing of the worker has been seen yet."""
    if seen.last_words is not None:
        return f"The worker ended without a session of its own: {seen.last_words or 'it said nothing'}"
    see = f" See: {started.attach}" if started.attach else ""
    if seen.asks:
        return f"The worker waits for an answer: {seen.asks}{see}"
    what = "fork's" if plan.form == "fork" else "worker's"
    return (
        f"{plan.agent} has not written the {what} log in {CONFIRM_SECONDS:g} seconds; it may be asking something.{see}"
    )
