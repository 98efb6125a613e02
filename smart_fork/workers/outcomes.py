"""What came of the work of forks: noted where git shows it, and as a person says it. What is not known is not said."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare, value
from smart_fork.errors import NotFound, ProgramFailed, SmartForkError
from smart_fork.finding import notes, sessions
from smart_fork.finding.commits import works_of
from smart_fork.finding.conversation import Noted
from smart_fork.finding.index_access import opened as index
from smart_fork.forking.lineage import lineage
from smart_fork.repository.git import Repository, opened
from smart_fork.system.processes import Processes
from smart_fork.workers.registry import WorkerRecord, known_worker

log = logging.getLogger(__name__)


@value
class NotedSession(Value):
    """A session and what is noted of it."""

    session_id: str
    agent_type: AgentName
    noted: Noted | None = rare()


def note_outcomes(workers: Iterable[WorkerRecord], processes: Processes) -> None:
    """Note of these workers what git shows, of those of which nothing is noted yet. A failure is nobody's business."""
    try:
        own = [worker for worker in workers if worker.session_id and worker.worktree and worker.branch]
        known = notes.noted((one.agent, str(one.session_id)) for one in own)
        for worker in own:
            noted = known.get((worker.agent, str(worker.session_id)))
            if noted is None or noted.verdict is None:
                _note(worker, processes)
    except (SmartForkError, OSError) as error:
        log.warning("what came of workers is not noted: %s", error)


def about(reference: str, processes: Processes) -> NotedSession:
    """A session with what is noted of it.

    Raises:
        SmartForkError: there is no such session.
    """
    located = sessions.locate(reference)
    if worker := known_worker(located.session_id):
        note_outcomes([worker], processes)
    return _told(located)


@bounded()
def judge(reference: str, outcome: notes.Outcome, reason: str = "") -> NotedSession:
    """Note what came of a session, as a person says it.

    Raises:
        SmartForkError: there is no such session, or it was forgotten.
    """
    located = sessions.locate(reference)
    worker = known_worker(located.session_id)
    tried, source = (worker.started_at, worker.source_session_id) if worker else ("", "")
    try:
        tried = tried or sessions.look_into(located).last_activity
        if not source:
            family = lineage(located.reference).sessions
            source = next((one.parent or "" for one in family if one.session_id == located.session_id), "")
    except NotFound as error:  # its log is gone: the verdict is good without
        log.info("the parent of %s is not known: %s", located.session_id, error)
    notes.judge(located.agent, located.session_id, outcome, reason, source=source, tried=tried)
    return _told(located)


def unjudge(reference: str) -> NotedSession:
    """Note nothing of what came of a session.

    Raises:
        SmartForkError: there is no such session.
    """
    located = sessions.locate(reference)
    notes.unjudge(located.agent, located.session_id)
    return _told(located)


def mark(references: Sequence[str], marks: Collection[str], *, remove: bool = False) -> list[NotedSession]:
    """Mark sessions, or no longer, with tags or marks of ours; each with what is noted of it then.

    Raises:
        SmartForkError: one does not exist, or was forgotten; those after it are not marked.
    """
    found = [sessions.locate(one) for one in references]
    for one in found if marks else ():
        notes.mark(one.agent, one.session_id, marks, remove=remove)
    return [_told(one) for one in found]


def _told(located: sessions.Located) -> NotedSession:
    return NotedSession(located.session_id, located.agent, notes.noted_of(located.agent, located.session_id))


def _note(worker: WorkerRecord, processes: Processes) -> None:
    try:
        outcome = _outcome(worker, processes)
        if outcome:
            notes.judge(
                worker.agent, str(worker.session_id), outcome, source=worker.source_session_id,
                tried=worker.started_at, said_by="git",
            )  # fmt: skip
    except SmartForkError as error:  # no repository, no index, forgotten
        log.info("what came of %s is not known: %s", worker.id, error)


def _outcome(worker: WorkerRecord, processes: Processes) -> Literal["merged", "dropped"] | None:
    """What git shows: its commits are in what is checked out, or nothing that it wrote is in any branch and its own
    branch is gone.
    """
    path = Path(str(worker.worktree))
    there = opened(path.parent.parent, processes)
    tip = there.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"refs/heads/{worker.branch}").text
    if tip:
        if there.git("symbolic-ref", "--quiet", "HEAD").text == f"refs/heads/{worker.branch}":
            return None  # a person goes on there
        return "merged" if _is_merged(there, tip, worker.base_commit or "") else None
    if path.exists():
        return None
    rows, works = works_of([(worker.agent, str(worker.session_id))], str(path.parent.parent), processes)
    if isinstance(works, ProgramFailed) or works.commits_left or not rows:
        return None
    if work := works.of.get(rows[0].row):
        return "merged" if work.today else None
    with index() as store:
        return "dropped" if store.edits([rows[0].row]) else None


def _is_merged(there: Repository, tip: str, base: str) -> bool:
    """Whether it has commits beside those that it began with, and each of these, or its like, is checked out."""
    made = there.git("rev-list", "--count", tip, f"^{base}")
    if not made.ok or made.text == "0":
        return False
    if there.git("merge-base", "--is-ancestor", tip, "HEAD").ok:
        return True
    like = there.git("cherry", "HEAD", tip, base)
    return like.ok and bool(like.text) and all(line.startswith("- ") for line in like.text.splitlines())
