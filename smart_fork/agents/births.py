"""Which session is a worker's, where the agent has told nobody: by what its log says of its beginning.

Only what must be so counts: the directory, the session that it was forked from, the time, and the worker's own prompt.
Where two could be meant, none is (R-025, R-046): another session's log is never taken for a worker's.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from indexer.masking import mask
from indexer.transcripts.base import LogFile
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Agent
from smart_fork.agents import AGENTS
from smart_fork.agents.logs import original_of
from smart_fork.agents.own_part import own_part
from smart_fork.agents.plan import plain_prompt
from smart_fork.agents.staging import folder_of
from smart_fork.errors import Usage
from smart_fork.registry import OVER, Registry, Worker

#: Agents write times in milliseconds, file systems round theirs, up to two seconds.
_RECORD_SECONDS = 0.002
_FILE_SECONDS = 2.0
#: A worker whose session was not found in this time has none: old logs are not read again and again.
SEARCHED_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Birth:
    """What the first record of a Codex log says of the session."""

    session_id: str
    parent_id: str | None
    cwd: str
    born: float


def worker_of(registry: Registry, agent: Agent, session_id: str, prompt: str) -> Worker | None:
    """The worker whose session that is, or once was, or can only be. `prompt` is the one just given, if any."""
    known = registry.of_session(session_id)
    if known is None and agent == "codex":
        return _worker_of_codex_session(registry, session_id, prompt)
    return known


def _worker_of_codex_session(registry: Registry, session_id: str, prompt: str) -> Worker | None:
    """The only living worker without a session whose this one can be. `prompt` is the one just given, if any."""
    waiting = [worker for worker in registry.workers() if worker.agent == "codex" and _waits_for_its_session(worker)]
    log = original_of(AGENTS["codex"], session_id) if waiting else None
    if log is None:
        return None
    fitting = [worker for worker in waiting if _fits(log, worker, prompt)]
    return fitting[0] if len(fitting) == 1 else None


def find_sessions(registry: Registry, now: float) -> list[tuple[Worker, str]]:
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


def _waits_for_its_session(worker: Worker) -> bool:
    return worker.session_id is None and worker.state not in OVER


def _candidates(worker: Worker) -> Iterator[str]:
    began = moment(worker.started_at)
    if began is None:
        return
    reader = AGENTS[worker.agent]
    for file in reader.discover():
        if _may_be_of(file, worker, began) and _fits(file.path, worker, ""):
            yield reader.id_of(file.path)


def _may_be_of(file: LogFile, worker: Worker, began: float) -> bool:
    if not began - _FILE_SECONDS <= file.mtime_ns / 1e9:
        return False
    return worker.agent == "codex" or file.path.parent == folder_of(Path(worker.cwd))


def _fits(log: Path, worker: Worker, prompt: str) -> bool:
    if AGENTS[worker.agent].id_of(log) == worker.caller_session_id or not _began_so(log, worker):
        return False
    if not worker.prompt:
        return worker.kind != "continue"  # any session of that directory could be the one that is gone on with
    return _same(prompt or _first_prompt(log, worker), worker.prompt)


def _began_so(log: Path, worker: Worker) -> bool:
    """Whether it was begun in the worker's directory, since it was started, and from what it was to be."""
    began = moment(worker.started_at)
    if began is None:
        return False
    if worker.agent == "claude":  # what it forks or begins has an id that we chose
        return worker.kind == "continue"
    birth = codex_birth(log)
    if birth is None or birth.cwd != worker.cwd:
        return False
    if worker.kind == "continue":
        return True
    parent = worker.source_session_id if worker.is_fork else None
    return birth.parent_id == parent and birth.born >= began - _RECORD_SECONDS


def codex_birth(log: Path) -> Birth | None:
    """What the first record says. Later ones do not count: the parent's own first record may be among them."""
    with contextlib.suppress(OSError):
        meta = next((line.record.get("payload") for line in LineReader(log)), None)
        if isinstance(meta, dict):
            parent, born = meta.get("forked_from_id"), moment(meta.get("timestamp"))
            if isinstance(meta.get("id"), str) and isinstance(meta.get("cwd"), str) and born is not None:
                return Birth(meta["id"], parent if isinstance(parent, str) else None, meta["cwd"], born)
    return None


def _first_prompt(log: Path, worker: Worker) -> str:
    """What the worker was asked first, itself; empty where the log does not say, or not yet."""
    try:
        session = AGENTS[worker.agent].read(log).session
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


def moment(text: object) -> float | None:
    """Seconds since the epoch, of a time with ``Z`` or with an offset (R-043)."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
