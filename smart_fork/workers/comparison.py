"""Comparison of workers (agents that smart-fork started): their answers, changes, tokens and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from indexer.errors import what_failed
from indexer.json_values import seconds_in
from indexer.masking import beginning, mask
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import printable
from smart_fork.errors import NotFound, SmartForkError, advice
from smart_fork.finding import session_lookup
from smart_fork.finding.session_notes import noted_if_known
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.liveness import is_alive
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.results import Compared
from smart_fork.workers.uncommitted import difference
from smart_fork.workers.verdicts import note_outcomes

#: The longest time between two starts of one fan-out; each start waits for its agent's first words.
TOGETHER_SECONDS = 60.0
#: The longest patch; more is cut off.
MAX_PATCH_CHARACTERS = 1_000_000


def compare(references: Sequence[str], processes: Processes | None = None, *, patch: bool = False) -> list[Compared]:
    """Compare the workers that `references` name; without names, the last fan-out: forks that got one prompt together.

    With `patch`, each entry contains the full diff of the worker's changes. Raise `NotFound` if there is no fan-out.
    """
    with Registry() as registry:
        workers = [registry.get(one) for one in references] or last_fan_out(registry.permitted())
    processes = processes or Processes()
    note_outcomes(workers, processes)
    known = noted_if_known((worker.agent, worker.session_id) for worker in workers if worker.session_id)
    return [
        replace(_compared(worker, processes, patch=patch), noted=known.get((worker.agent, worker.session_id or "")))
        for worker in workers
    ]


def grouped_by_start(workers: Sequence[WorkerRecord]) -> Iterator[list[list[WorkerRecord]]]:
    """Yield for each prompt a list of groups; a group is the workers that got this prompt at about the same time.

    `workers` must be newest first. The groups, and the workers in each group, are newest first too.
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
    """Return the newest group of workers that received one prompt together, ordered by the numbers in their names.

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
    living = is_alive(worker, Machine(processes))
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
