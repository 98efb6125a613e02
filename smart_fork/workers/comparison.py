"""What several workers have made of the same prompt, side by side: answers, changes, tokens, time."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from indexer.masking import NOTHING, Masked, beginning, mask
from indexer.transcripts.model import AgentName, Session
from smart_fork import permission, sessions
from smart_fork.advice import advice
from smart_fork.agents import READERS
from smart_fork.agents.logs import original_of
from smart_fork.agents.own_part import own_part
from smart_fork.agents.spent import output_tokens
from smart_fork.errors import NotFound, SmartForkError
from smart_fork.places.liveness import lives
from smart_fork.processes import Processes
from smart_fork.registry import Kind, Registry, WorkerRecord
from smart_fork.repository.changes import FileChange, difference
from smart_fork.snippets import printable

#: Starts that are no further apart than this belong together: each waits for its agent's first words.
TOGETHER_SECONDS = 60.0
#: A patch is cut here: nobody reads more of one.
MAX_PATCH_CHARACTERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Compared:
    """One worker. What is not known is `None`, and `notes` say why.

    `answer` is the last that it said itself; `seconds` is the time from its start to its last activity. `files` and
    `diff` are its own changes: committed, uncommitted and new files together, against what it began with.
    """

    worker_id: str
    session_id: str | None
    name: str
    agent_type: AgentName
    kind: Kind
    state: str
    status: str
    prompt: Masked
    started_at: str
    last_activity: str | None = None
    seconds: float | None = None
    context_tokens: int | None = None
    output_tokens: int | None = None
    answer: Masked = NOTHING
    worktree: str | None = None
    branch: str | None = None
    files: tuple[FileChange, ...] | None = None
    diff: Masked | None = None
    notes: tuple[str, ...] = ()

    @property
    def added(self) -> int:
        """Lines added."""
        return sum(file.added or 0 for file in self.files or ())

    @property
    def removed(self) -> int:
        """Lines removed."""
        return sum(file.removed or 0 for file in self.files or ())

    def as_json(self) -> dict[str, Any]:
        """The worker as JSON values."""
        files = None if self.files is None else [asdict(file) for file in self.files]
        return asdict(self) | {
            "files": files,
            "notes": list(self.notes),
            "lines_added": None if files is None else self.added,
            "lines_removed": None if files is None else self.removed,
        }


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
    return [_compared(worker, processes, patch=patch) for worker in workers]


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
        "No workers were given the same prompt together",
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
    ]


def duration(seconds: float) -> str:
    """A time for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def counted(file: FileChange) -> str:
    """How many lines of it."""
    return "binary" if file.added is None else f"+{file.added} -{file.removed}"


def _compared(worker: WorkerRecord, processes: Processes, *, patch: bool) -> Compared:
    living = lives(worker, processes, os.environ, time.time())
    one = Compared(
        worker.id,
        worker.session_id,
        worker.name,
        worker.agent,
        worker.kind,
        worker.state if living or worker.state == "failed" else "ended",
        worker.status if living else "",
        mask(worker.prompt),
        worker.started_at,
        worktree=worker.worktree,
        branch=worker.branch,
    )
    return _with_changes(_with_words(one, worker), worker, processes, patch=patch)


def _with_words(one: Compared, worker: WorkerRecord) -> Compared:
    """With what its log says."""
    try:
        session, log = _session(worker)
        own = own_part(session, worker)
        spent = output_tokens(worker.agent, log, worker.started_at)
    except SmartForkError as error:
        return replace(one, notes=(*one.notes, error.message))
    except OSError as error:
        return replace(one, notes=(*one.notes, f"Its log cannot be read: {error}"))
    times = [turn.timestamp for turn in own if turn.timestamp]
    answer = next((turn.text for turn in reversed(own) if turn.role == "assistant" and turn.text), "")
    return replace(
        one,
        last_activity=max(times, default=None),
        seconds=max(0.0, _moment(max(times)) - _moment(worker.started_at)) if times else None,
        context_tokens=session.token_estimate if own else None,
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
        return replace(one, notes=(*one.notes, f"Its changes are not known: {error}"))
    diff = beginning(printable(mask(text.decode("utf-8", "replace"))), MAX_PATCH_CHARACTERS)
    return replace(one, files=files, diff=diff if patch else None)


def _session(worker: WorkerRecord) -> tuple[Session, Path]:
    if not worker.session_id:
        raise NotFound("It has no session of its own yet")
    if worker.agent not in READERS.names:
        raise NotFound(f"What {worker.agent} writes is not read")
    log = original_of(READERS[worker.agent], worker.session_id)
    if log is None:
        raise NotFound("It has not written a log yet, or its log is gone")
    session = sessions.read(sessions.Located(worker.agent, worker.session_id, log))
    return session, session.source_path


def _seconds(older: WorkerRecord, newer: WorkerRecord) -> float:
    return _moment(newer.started_at) - _moment(older.started_at)


def _moment(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _changes(one: Compared) -> str:
    if one.files is None:
        return "unknown"
    number = len(one.files)
    return f"{number} file{'' if number == 1 else 's'}, +{one.added} -{one.removed}" if number else "none"
