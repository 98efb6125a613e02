"""Which session is a worker's, where the agent has told nobody: by what its log says of its beginning.

Only what must be so counts: the directory, the session that it was forked from, the time, and the worker's own prompt.
Where two could be meant, none is: another session's log is never taken for a worker's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from indexer.masking import mask
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.birth import moment
from smart_fork.agents.facets import storage_of
from smart_fork.agents.logs import original_of
from smart_fork.agents.own_part import own_part
from smart_fork.agents.plan import plain_prompt
from smart_fork.errors import Usage
from smart_fork.registry.workers import OVER, Registry, WorkerRecord

#: Agents write times in milliseconds, file systems round theirs, up to two seconds.
_RECORD_SECONDS = 0.002
_FILE_SECONDS = 2.0
#: A worker whose session was not found in this time has none: old logs are not read again and again.
SEARCHED_SECONDS = 24 * 3600.0


def worker_of(registry: Registry, agent: AgentName, session_id: str, prompt: str) -> WorkerRecord | None:
    """The worker whose session that is, or once was, or can only be. `prompt` is the one just given, if any."""
    known = registry.of_session(session_id)
    if known is None and AGENTS[agent].births:
        return _worker_that_waits(registry, agent, session_id, prompt)
    return known


def _worker_that_waits(registry: Registry, agent: AgentName, session_id: str, prompt: str) -> WorkerRecord | None:
    """The only living worker without a session whose this one can be. `prompt` is the one just given, if any."""
    waiting = [worker for worker in registry.workers() if worker.agent == agent and _waits_for_its_session(worker)]
    log = original_of(READERS[agent], session_id) if waiting else None
    if log is None:
        return None
    fitting = [worker for worker in waiting if _fits(log, worker, prompt)]
    return fitting[0] if len(fitting) == 1 else None


def find_sessions(registry: Registry, now: float) -> list[tuple[WorkerRecord, str]]:
    """For workers without a session, the one that can only be theirs, as nobody else's can be it."""
    waiting = [
        worker
        for worker in registry.workers()
        if worker.session_id is None
        and worker.state != "failed"
        and (moment(worker.started_at) or 0.0) >= now - SEARCHED_SECONDS
    ]
    could_be = [(worker, one) for worker in waiting for one in _candidates(worker) if not registry.of_session(one)]
    owners = Counter(session_id for _, session_id in could_be)
    choices = Counter(worker.id for worker, _ in could_be)
    return [(worker, one) for worker, one in could_be if choices[worker.id] == owners[one] == 1]


def _waits_for_its_session(worker: WorkerRecord) -> bool:
    return worker.session_id is None and worker.state not in OVER


def _candidates(worker: WorkerRecord) -> Iterator[str]:
    began = moment(worker.started_at)
    if began is None or worker.agent not in READERS.names:  # another version may know agents that this one does not
        return
    reader = READERS[worker.agent]
    folder = storage_of(worker.agent).folder(Path(worker.cwd))
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
    """Whether it was begun in the worker's directory, since it was started, and from what it was to be."""
    began = moment(worker.started_at)
    if began is None:
        return False
    births = AGENTS[worker.agent].births
    if births is None:  # what it forks or begins has an id that we chose
        return worker.kind == "continue"
    birth = births.birth(log)
    if birth is None or birth.cwd != worker.cwd:
        return False
    if worker.kind == "continue":
        return True
    parent = worker.source_session_id if worker.is_fork else None
    return birth.parent_id == parent and birth.born >= began - _RECORD_SECONDS


def _first_prompt(log: Path, worker: WorkerRecord) -> str:
    """What the worker was asked first, itself; empty where the log does not say, or not yet."""
    try:
        session = READERS[worker.agent].read(log).session
    except OSError:
        return ""
    if session is None or session.cwd != worker.cwd:
        return ""
    return next((turn.text for turn in own_part(session, worker) if turn.prompt), "")


def _same(said: str, prompt: str) -> bool:
    """Whether what a log says is the prompt of a worker, of which the register has everything but secrets."""
    told = mask(said.strip())
    try:
        return bool(told) and told in (prompt.strip(), plain_prompt(prompt).strip())
    except Usage:
        return False
