"""What is answered about workers that were started, and about comparing them: values."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self

from indexer.masking import NOTHING, Masked
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare, record, value
from smart_fork.agents.log_tail import TokenUse
from smart_fork.finding.session_view import Message, SessionNotes
from smart_fork.repository.uncommitted import FileChange
from smart_fork.snippets import duration

#: What is known of a window that is not ours.
_OF_OTHERS = (
    "worker_id", "session_id", "agent_type", "name", "cwd", "place", "terminal_id", "attach",
)  # fmt: skip


@record
class WorkerState(Value):
    """A worker and what it does. Of a window that is not ours, only where it is: its `agent_type` is ``?``.

    `first_answer` are the tokens of its first answer, as far as its log tells: what a fork has cost.
    """

    worker_id: str | None
    session_id: str | None
    agent_type: str
    kind: str = ""
    name: str
    prompt: str = ""
    state: str = ""
    status: str | None = None
    waiting_for: str | None = None
    last_activity: str = ""
    tokens: int = 0
    first_answer: TokenUse | None = rare()
    started_at: str = ""
    source_session_id: str | None = None
    cwd: str
    branch: str | None = None
    place: str
    terminal_id: str | None
    attach: str
    log: str | None = None

    @classmethod
    def more(cls, known: WorkerState, **also: Any) -> Self:
        """What is known of it, and more."""
        return cls(**{one.name: getattr(known, one.name) for one in fields(known)}, **also)

    def as_json(self) -> dict[str, Any]:
        """JSON values; of a window that is not ours, what is known of it."""
        told = super().as_json()
        return {key: told[key] for key in _OF_OTHERS} if self.worker_id is None else told


@record
class WorkerRead(WorkerState):
    """The last messages of the worker's own, how many come before them, what to do."""

    next: str = rare("")
    notice: str = rare("")
    messages: tuple[Message, ...]
    earlier: int


@record
class WorkerMessaged(WorkerState):
    """A worker that was told something: whether it was typed, queued, answered, or the worker resumed with it."""

    how: str
    warnings: tuple[str, ...]


@record
class WorkerWaited(WorkerState):
    """One worker that was waited for. `settled` says whether it is idle, asks something or has ended."""

    settled: bool
    last_words: str


@record
class WorkersWaited(Value):
    """Workers that were waited for. `done` is false when the time was over first. `next` says what to do."""

    done: bool
    next: str = rare("")
    notice: str = rare("")
    workers: tuple[WorkerWaited, ...]


@value
class Workers(Value):
    """The workers that there are. `next` says what to do about one that asks or has failed."""

    count: int
    notice: str
    workers: tuple[WorkerState, ...]
    next: str = rare("")


@value
class WorkerClosed(Value):
    """One worker that was to be ended; `note` says why it was not, or why its worktree is still there.

    `failed` is whether it still runs because of that.
    """

    worker_id: str
    session_id: str | None
    agent_type: str
    kind: str
    name: str
    closed: bool
    worktree_removed: bool | None
    note: str
    failed: bool = False


@value
class WorkersClosed(Value):
    """Workers that were to be ended."""

    workers: tuple[WorkerClosed, ...]


@record
class Compared(Value):
    """One worker: what it said last, what it changed, what it cost. What is not known is null, and `notes` say why.

    `answer` is the last that it said itself; `seconds` is the time from its start to its last activity. `files` and
    `diff` are its own changes: committed, uncommitted and new files together, against what it began with.
    """

    worker_id: str
    session_id: str | None
    name: str
    agent_type: AgentName
    kind: str
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
    noted: SessionNotes | None = rare()
    notes: tuple[str, ...] = ()
    lines_added: int | None = None
    lines_removed: int | None = None

    def facts(self) -> list[tuple[str, str]]:
        """What is known of a worker, in words, in the same order for all."""
        return [
            ("state", f"{self.state}, {self.status}" if self.status else self.state),
            ("time", "unknown" if self.seconds is None else duration(self.seconds)),
            ("context", "unknown" if self.context_tokens is None else f"{self.context_tokens:,} tokens"),
            ("written", "unknown" if self.output_tokens is None else f"{self.output_tokens:,} tokens"),
            ("changes", self._changes()),
            ("branch", self.branch or "none of its own"),
            ("outcome", "; ".join(self.noted.sentences) if self.noted and self.noted.verdict else "unknown"),
        ]

    def _changes(self) -> str:
        if self.files is None:
            return "unknown"
        number = len(self.files)
        return (
            f"{number} file{'' if number == 1 else 's'}, +{self.lines_added} -{self.lines_removed}"
            if number
            else "none"
        )


@value
class Comparison(Value):
    """Workers side by side."""

    notice: str = rare("")
    workers: tuple[Compared, ...] = ()
