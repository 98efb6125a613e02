"""Verdicts on the work of sessions (merged, kept or dropped): a person's or, on the commits of workers, git's."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

from indexer.json_values import Value, rare, value
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName
from smart_fork.errors import NotFound, SmartForkError
from smart_fork.finding import session_lookup, session_notes
from smart_fork.finding.git import Repository
from smart_fork.finding.index_access import opened as index
from smart_fork.finding.session_commits import works_of
from smart_fork.finding.session_notes import SessionNotes
from smart_fork.forking.lineage import lineage
from smart_fork.system.processes import Processes
from smart_fork.workers.registry import Registry, WorkerRecord

log = logging.getLogger(__name__)


@value
class NotedSession(Value):
    """A session and the notes on it: a verdict on its work (merged, kept or dropped), tags, and marks such as a pin."""

    session_id: str
    agent_type: AgentName
    noted: SessionNotes | None = rare()

    @classmethod
    @bounded()
    def judge(cls, reference: str, outcome: session_notes.VerdictKind, reason: str = "") -> NotedSession:
        """Record a person's verdict on a session's work: the `outcome` (merged, kept or dropped) and the `reason`."""
        located = session_lookup.locate(reference)
        worker = Registry.known_worker(located.session_id)
        tried, source = (worker.started_at, worker.source_session_id) if worker else ("", "")
        try:
            tried = tried or session_lookup.look_into(located).last_activity
            if not source:
                family = lineage(located.reference).sessions
                source = next((one.parent or "" for one in family if one.session_id == located.session_id), "")
        except NotFound as error:  # its log is gone: the verdict is good without
            log.info("the parent of %s is not known: %s", located.session_id, error)
        session_notes.judge(located.agent, located.session_id, outcome, reason, source=source, tried=tried)
        return _told(located)

    @classmethod
    def mark(cls, references: Sequence[str], marks: Collection[str], *, remove: bool = False) -> list[NotedSession]:
        """Add marks (tags, a pin, …) to sessions; with `remove`, remove them. If a session is unknown, mark none."""
        found = [session_lookup.locate(one) for one in references]
        for one in found if marks else ():
            session_notes.mark(one.agent, one.session_id, marks, remove=remove)
        return [_told(one) for one in found]

    @classmethod
    def unjudge(cls, reference: str) -> NotedSession:
        """Delete the verdict on a session."""
        located = session_lookup.locate(reference)
        session_notes.unjudge(located.agent, located.session_id)
        return _told(located)

    @classmethod
    def about(cls, reference: str, processes: Processes) -> NotedSession:
        """Return a session with the user's notes on it.

        If a worker has the session, first record whether git shows its commits as merged or dropped.
        """
        located = session_lookup.locate(reference)
        if worker := Registry.known_worker(located.session_id):
            note_outcomes([worker], processes)
        return _told(located)


def note_outcomes(workers: Iterable[WorkerRecord], processes: Processes) -> None:
    """Record if git shows commits of workers without a verdict as merged or dropped. Errors are only logged."""
    try:
        own = [worker for worker in workers if worker.session_id and worker.worktree and worker.branch]
        known = session_notes.noted((one.agent, str(one.session_id)) for one in own)
        for worker in own:
            noted = known.get((worker.agent, str(worker.session_id)))
            if noted is None or noted.verdict is None:
                _note(worker, processes)
    except (SmartForkError, OSError) as error:
        log.warning("what came of workers is not noted: %s", error)


def _told(located: session_lookup.Located) -> NotedSession:
    return NotedSession(located.session_id, located.agent, session_notes.noted_of(located.agent, located.session_id))


def _note(worker: WorkerRecord, processes: Processes) -> None:
    try:
        outcome = _outcome(worker, processes)
        if outcome:
            session_notes.judge(
                worker.agent, str(worker.session_id), outcome, source=worker.source_session_id,
                tried=worker.started_at, said_by="git",
            )  # fmt: skip
    except SmartForkError as error:  # no repository, no index, forgotten
        log.info("what came of %s is not known: %s", worker.id, error)


def _outcome(worker: WorkerRecord, processes: Processes) -> Literal["merged", "dropped"] | None:
    """Return what became of the worker's commits according to git; `None` if git does not show it.

    "merged": the checked-out branch has them. "dropped": the worker's branch is gone, and no branch has them.
    """
    path = Path(str(worker.worktree))
    there = Repository.open(path.parent.parent, processes)
    tip = there.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"refs/heads/{worker.branch}").text
    if tip:
        if there.git("symbolic-ref", "--quiet", "HEAD").text == f"refs/heads/{worker.branch}":
            return None  # a person goes on there
        return "merged" if _is_merged(there, tip, worker.base_commit or "") else None
    if path.exists():
        return None
    works, complete = works_of([(worker.agent, str(worker.session_id))], str(path.parent.parent), processes)
    if not complete or not works:
        return None
    if (work := works[str(worker.session_id)]).count:
        return "merged" if work.lines_today else None
    with index() as store:
        row = store.session(worker.agent, str(worker.session_id))
        return "dropped" if row and store.edits([row.row]) else None


def _is_merged(there: Repository, tip: str, base: str) -> bool:
    """Return True if there are commits from `base` to `tip`, and the checked-out branch has all of them.

    A commit with the same patch counts too, such as one made by a rebase.
    """
    made = there.git("rev-list", "--count", tip, f"^{base}")
    if not made.ok or made.text == "0":
        return False
    if there.git("merge-base", "--is-ancestor", tip, "HEAD").ok:
        return True
    like = there.git("cherry", "HEAD", tip, base)
    return like.ok and bool(like.text) and all(line.startswith("- ") for line in like.text.splitlines())
