"""Finds the session of a worker (an agent that smart-fork started) if the agent chose the session's id itself.

A session matches a worker by the beginning of its log: directory, start time, parent and first prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from indexer.json_values import seconds_in
from indexer.masking import mask
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import Usage
from smart_fork.workers.registry import Registry, WorkerRecord

#: Agents write times in milliseconds. File systems round times by up to two seconds.
_RECORD_SECONDS = 0.002
_FILE_SECONDS = 2.0
#: Seconds after a start in which a worker's session is searched, so that old logs are not read forever.
SEARCHED_SECONDS = 24 * 3600.0


def worker_of(registry: Registry, agent: AgentName, session_id: str, prompt: str) -> WorkerRecord | None:
    """Return the worker that has or had a session; otherwise the running worker to which this session must belong.

    `prompt` is the session's current prompt, if known. Return `None` if no worker, or several workers, match its log.
    """
    known = registry.of_session(session_id)
    if known is None and AGENTS[agent].worker_sessions:
        return _waiting_worker(registry, agent, session_id, prompt)
    return known


def _waiting_worker(registry: Registry, agent: AgentName, session_id: str, prompt: str) -> WorkerRecord | None:
    """Return the running worker without a known session that matches this one; `None` if no worker or several match."""
    of_agent = [worker for worker in registry.workers() if worker.agent == agent]
    waiting = [worker for worker in of_agent if worker.session_id is None and not worker.is_over]
    log = READERS.original_of(agent, session_id) if waiting else None
    if log is None:
        return None
    fitting = [worker for worker in waiting if _fits(log, worker, prompt)]
    return fitting[0] if len(fitting) == 1 else None


def find_sessions(registry: Registry, now: float) -> list[tuple[WorkerRecord, str]]:
    """Return (worker, session id) for workers without a known session, if worker and session match only each other."""
    waiting = [
        worker
        for worker in registry.workers()
        if worker.session_id is None
        and worker.state != "failed"
        and (seconds_in(worker.started_at) or 0.0) >= now - SEARCHED_SECONDS
    ]
    could_be = [(worker, one) for worker in waiting for one in _candidates(worker) if not registry.of_session(one)]
    owners = Counter(session_id for _, session_id in could_be)
    choices = Counter(worker.id for worker, _ in could_be)
    return [(worker, one) for worker, one in could_be if choices[worker.id] == owners[one] == 1]


def _candidates(worker: WorkerRecord) -> Iterator[str]:
    began = seconds_in(worker.started_at)
    if began is None or worker.agent not in READERS.names:  # another version may know agents that this one does not
        return
    reader = READERS[worker.agent]
    folder = AGENTS.storage_of(worker.agent).folder(Path(worker.cwd))
    for file in reader.discover():
        recent = began - _FILE_SECONDS <= file.mtime_ns / 1e9
        if recent and folder in (None, file.path.parent) and _fits(file.path, worker, ""):
            yield reader.id_of(file.path)


def _fits(log: Path, worker: WorkerRecord, prompt: str) -> bool:
    if READERS[worker.agent].id_of(log) == worker.caller_session_id or not _began_so(log, worker):
        return False
    if not worker.prompt:
        return worker.kind != "continue"  # any session of that directory could be the one that is gone on with
    return _same(prompt or _first_prompt(log, worker), worker.prompt)


def _began_so(log: Path, worker: WorkerRecord) -> bool:
    """Return True if the directory, the start time and the parent of the session in `log` match the worker."""
    began = seconds_in(worker.started_at)
    if began is None:
        return False
    finder = AGENTS[worker.agent].worker_sessions
    if finder is None:  # what it forks or begins has an id that we chose
        return worker.kind == "continue"
    beginning = finder.beginning(log)
    if beginning is None or beginning.cwd != worker.cwd:
        return False
    if worker.kind == "continue":
        return True
    parent = worker.source_session_id if worker.is_fork else None
    return beginning.parent_id == parent and beginning.born >= began - _RECORD_SECONDS


def _first_prompt(log: Path, worker: WorkerRecord) -> str:
    """Return the first prompt after the worker's start, from the log; empty if there is none yet."""
    try:
        session = READERS[worker.agent].read(log).session
    except OSError:
        return ""
    if session is None or session.cwd != worker.cwd:
        return ""
    return next((turn.text for turn in worker.own_part(session) if turn.prompt), "")


def _same(said: str, prompt: str) -> bool:
    """Return True if `said`, from a log, equals the worker's `prompt`, in which secrets are masked."""
    told = mask(said.strip())
    try:
        return bool(told) and told in (prompt.strip(), ForkPlan.plain_prompt(prompt).strip())
    except Usage:
        return False
