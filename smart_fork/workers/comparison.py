"""What several workers have made of the same prompt, side by side: answers, changes, tokens, time."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from indexer.failures import what_failed
from indexer.masking import beginning, mask
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.births import own_part
from smart_fork.agents.logs import original_of
from smart_fork.agents.readers import READERS
from smart_fork.errors import NotFound, SmartForkError, advice
from smart_fork.finding import sessions
from smart_fork.finding.notes import noted_if_known
from smart_fork.repository.changes import difference
from smart_fork.repository.file_change import FileChange
from smart_fork.snippets import printable
from smart_fork.system import permission
from smart_fork.system.processes import Processes
from smart_fork.system.stages import duration
from smart_fork.workers.liveness import lives
from smart_fork.workers.outcomes import note_outcomes
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.state import Compared

#: Starts that are no further apart than this belong together: each waits for its agent's first words.
TOGETHER_SECONDS = 60.0
#: A patch is cut here: nobody reads more of one.
MAX_PATCH_CHARACTERS = 1_000_000


def compare(references: Sequence[str], processes: Processes, *, patch: bool = False) -> list[Compared]:
    """The workers that `references` mean, or those of the last fan-out; with `patch` also what they changed, in full.

    Raises:
        NotFound: there is no such worker, or there was no fan-out.
        Usage: a reference means several workers.
    """
    with Registry() as registry:
        workers = [registry.get(one) for one in references] or last_fan_out(
            [worker for worker in registry.workers() if permission.permits(worker.cwd)]
        )
    note_outcomes(workers, processes)
    known = noted_if_known((worker.agent, worker.session_id) for worker in workers if worker.session_id)
    return [
        replace(_compared(worker, processes, patch=patch), noted=known.get((worker.agent, worker.session_id or "")))
        for worker in workers
    ]


def last_fan_out(workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
    """Of all workers, newest first: the newest ones that were given the same prompt together.

    In the order of their numbered names, since which of them was registered first is chance.

    Raises:
        NotFound: no two were.
    """
    prompts = dict.fromkeys(worker.prompt for worker in workers if worker.prompt)
    for prompt in prompts:
        same = [worker for worker in workers if worker.prompt == prompt]
        apart = (i for i, (newer, older) in enumerate(pairwise(same), 1) if _seconds(older, newer) > TOGETHER_SECONDS)
        together = same[: next(apart, len(same))]
        if len(together) > 1:
            return sorted(together, key=lambda worker: (len(worker.name), worker.name))
    raise NotFound(
        "There is no fan-out to compare",
        advice("Name them: smart-fork compare WORKER WORKER", tool="Name them in workers; list_workers lists them."),
    )


def facts(one: Compared) -> list[tuple[str, str]]:
    """What is known of a worker, in words, in the same order for all."""
    return [
        ("state", f"{one.state}, {one.status}" if one.status else one.state),
        ("time", "unknown" if one.seconds is None else duration(one.seconds)),
        ("context", "unknown" if one.context_tokens is None else f"{one.context_tokens:,} tokens"),
        ("written", "unknown" if one.output_tokens is None else f"{one.output_tokens:,} tokens"),
        ("changes", _changes(one)),
        ("branch", one.branch or "none of its own"),
        ("outcome", "; ".join(one.noted.sentences) if one.noted and one.noted.verdict else "unknown"),
    ]


def counted(file: FileChange) -> str:
    """How many lines of it."""
    return "binary" if file.added is None else f"+{file.added} -{file.removed}"


def _compared(worker: WorkerRecord, processes: Processes, *, patch: bool) -> Compared:
    living = lives(worker, processes, os.environ, time.time())
    one = Compared(
        worker_id=worker.id,
        session_id=worker.session_id,
        name=worker.name,
        agent_type=worker.agent,
        kind=worker.kind,
        state=worker.state if living or worker.state == "failed" else "ended",
        status=worker.status if living else "",
        prompt=mask(worker.prompt),
        started_at=worker.started_at,
        worktree=worker.worktree,
        branch=worker.branch,
    )
    return _with_changes(_with_words(one, worker), worker, processes, patch=patch)


def _with_words(one: Compared, worker: WorkerRecord) -> Compared:
    """With what its log says."""
    try:
        session, log = _session(worker)
        own = own_part(session, worker)
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
        seconds=max(0.0, moment(max(times)) - moment(worker.started_at)) if times else None,
        context_tokens=session.token_estimate if any(turn.loaded for turn in own) else None,
        output_tokens=spent,
        answer=printable(mask(answer)),
        notes=one.notes if answer else (*one.notes, "It has not answered yet"),
    )


def _with_changes(one: Compared, worker: WorkerRecord, processes: Processes, *, patch: bool) -> Compared:
    """With what it has done to its worktree."""
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
    log = original_of(READERS[worker.agent], worker.session_id)
    if log is None:
        raise NotFound("It has not written a log yet, or its log is gone")
    session = sessions.read(sessions.Located(worker.agent, worker.session_id, log))
    return session, session.source_path


def _seconds(older: WorkerRecord, newer: WorkerRecord) -> float:
    return moment(newer.started_at) - moment(older.started_at)


def moment(timestamp: str) -> float:
    """A time of the register in seconds."""
    return datetime.fromisoformat(timestamp).timestamp()


def _changes(one: Compared) -> str:
    if one.files is None:
        return "unknown"
    number = len(one.files)
    return f"{number} file{'' if number == 1 else 's'}, +{one.lines_added} -{one.lines_removed}" if number else "none"
