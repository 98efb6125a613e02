"""Comparison of workers (agents that smart-fork started): their answers, changes, tokens and time.

Also here: a person's verdicts on sessions, and whether git shows that a worker's commits were merged or dropped.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from indexer.errors import what_failed
from indexer.masking import beginning, mask
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName, Session
from indexer.values import Value, rare, seconds_in, value
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import printable
from smart_fork.errors import NotFound, SmartForkError, advice
from smart_fork.finding import session_lookup, session_notes
from smart_fork.finding.commits import works_of
from smart_fork.finding.index_access import opened as index
from smart_fork.finding.session_notes import SessionNotes, noted_if_known
from smart_fork.forking.lineage import lineage
from smart_fork.repository.git import Repository
from smart_fork.repository.uncommitted import difference
from smart_fork.system import call_context
from smart_fork.system.processes import Processes
from smart_fork.workers.answers import Compared
from smart_fork.workers.liveness import is_alive
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
    """Record for workers without a verdict whether git shows their commits as merged or dropped. Only log errors."""
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
    """Return True if the branch `tip` has commits beyond `base`, and the checked-out branch has them all.

    A commit with an equal patch counts as the commit.
    """
    made = there.git("rev-list", "--count", tip, f"^{base}")
    if not made.ok or made.text == "0":
        return False
    if there.git("merge-base", "--is-ancestor", tip, "HEAD").ok:
        return True
    like = there.git("cherry", "HEAD", tip, base)
    return like.ok and bool(like.text) and all(line.startswith("- ") for line in like.text.splitlines())


#: The longest time between two starts of one fan-out; each start waits for its agent's first words.
TOGETHER_SECONDS = 60.0
#: The longest patch; more is cut off.
MAX_PATCH_CHARACTERS = 1_000_000


def compare(references: Sequence[str], processes: Processes, *, patch: bool = False) -> list[Compared]:
    """Compare the workers that `references` name; without names, the last fan-out: forks that got one prompt together.

    With `patch`, each entry contains the full diff of the worker's changes. Raise `NotFound` without a fan-out.
    """
    with Registry() as registry:
        workers = [registry.get(one) for one in references] or last_fan_out(
            [worker for worker in registry.workers() if call_context.permits(worker.cwd)]
        )
    note_outcomes(workers, processes)
    known = noted_if_known((worker.agent, worker.session_id) for worker in workers if worker.session_id)
    return [
        replace(_compared(worker, processes, patch=patch), noted=known.get((worker.agent, worker.session_id or "")))
        for worker in workers
    ]


def grouped_by_start(workers: Sequence[WorkerRecord]) -> Iterator[list[list[WorkerRecord]]]:
    """Yield for each prompt the groups of workers that were started together with it.

    `workers` must be newest first; the groups, and the workers in each group, are too.
    """
    by_prompt: dict[str, list[list[WorkerRecord]]] = {}
    for worker in workers:
        groups = by_prompt.setdefault(worker.prompt, []) if worker.prompt else []
        if groups and _seconds(worker.started_at, groups[-1][-1].started_at) <= TOGETHER_SECONDS:
            groups[-1].append(worker)
        else:
            groups.append([worker])
    yield from by_prompt.values()


def last_fan_out(workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
    """Return the newest group of workers that received one prompt together, by the numbers in their names.

    Raises:
        NotFound: no two of the `workers` (newest first) received a prompt together.
    """
    for newest, *_ in grouped_by_start(workers):
        if len(newest) > 1:
            return sorted(newest, key=lambda worker: (len(worker.name), worker.name))
    raise NotFound(
        "There is no fan-out to compare",
        advice("Name them: smart-fork compare WORKER WORKER", tool="Name them in workers; list_workers lists them."),
    )


def _compared(worker: WorkerRecord, processes: Processes, *, patch: bool) -> Compared:
    living = is_alive(worker, processes, os.environ, time.time())
    one = worker.told(
        Compared, state=worker.state if living or worker.state == "failed" else "ended",
        status=worker.status if living else "", prompt=mask(worker.prompt),
    )  # fmt: skip
    return _with_changes(_with_words(one, worker), worker, processes, patch=patch)


def _with_words(one: Compared, worker: WorkerRecord) -> Compared:
    """Return the comparison entry `one` with the answer, times and tokens from the worker's log."""
    try:
        session, log = _session(worker)
        own = worker.own_part(session)
        spent = AGENTS.tail_of(worker.agent).output_tokens(log, worker.started_at)
    except SmartForkError as error:
        return replace(one, notes=(*one.notes, error.message))
    except OSError as error:
        return replace(one, notes=(*one.notes, f"Its log cannot be read: {what_failed(error)}"))
    times = [turn.timestamp for turn in own if turn.timestamp]
    answer = next((turn.text for turn in reversed(own) if turn.role == "assistant" and turn.text), "")
    return replace(
        one,
        last_activity=max(times, default=None),
        seconds=max(0.0, _seconds(worker.started_at, max(times))) if times else None,
        context_tokens=session.token_estimate if any(turn.loaded for turn in own) else None,
        output_tokens=spent,
        answer=printable(mask(answer)),
        notes=one.notes if answer else (*one.notes, "It has not answered yet"),
    )


def _with_changes(one: Compared, worker: WorkerRecord, processes: Processes, *, patch: bool) -> Compared:
    """Return the comparison entry `one` with the changes in the worker's worktree, as a full diff if `patch`."""
    if not (worker.worktree and worker.base_commit):
        return replace(one, notes=(*one.notes, "Its changes are not known: it has no worktree of its own"))
    if not Path(worker.worktree).is_dir():
        return replace(one, notes=(*one.notes, "Its changes are not known: its worktree is gone"))
    try:
        files, text = difference(Path(worker.worktree), worker.base_commit, processes, patch=patch)
    except (SmartForkError, OSError) as error:
        return replace(one, notes=(*one.notes, f"Its changes are not known: {what_failed(error)}"))
    diff = beginning(printable(mask(text.decode("utf-8", "replace"))), MAX_PATCH_CHARACTERS)
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    return replace(one, files=files, lines_added=added, lines_removed=removed, diff=diff if patch else None)


def _session(worker: WorkerRecord) -> tuple[Session, Path]:
    if not worker.session_id:
        raise NotFound("It has no session yet")
    if worker.agent not in READERS.names:
        raise NotFound(f"What {worker.agent} writes cannot be read")
    log = READERS.original_of(worker.agent, worker.session_id)
    if log is None:
        raise NotFound("It has not written a log yet, or its log is gone")
    session = session_lookup.read(session_lookup.Located(worker.agent, worker.session_id, log))
    return session, session.source_path


def _seconds(older: str, newer: str) -> float:
    return (seconds_in(newer) or 0.0) - (seconds_in(older) or 0.0)
