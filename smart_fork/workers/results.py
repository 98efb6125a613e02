"""Answers to the user or model about workers (agents that smart-fork started), as values that become JSON."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self

from indexer.json_values import Value, rare, record, value
from indexer.masking import NOTHING, Masked
from indexer.transcripts.model import AgentName
from smart_fork.agents.log_tail import TokenUse
from smart_fork.display_text import duration
from smart_fork.finding.conversation import Message
from smart_fork.finding.session_notes import SessionNotes
from smart_fork.workers.uncommitted import FileChange

#: The known fields of a window that smart-fork did not open.
_OF_OTHERS = (
    "worker_id", "session_id", "agent_type", "name", "cwd", "place", "terminal_id", "attach",
)  # fmt: skip


@record
class WorkerState(Value):
    """A worker (an agent that smart-fork started) and what it is doing now.

    `first_answer` has the tokens of its first answer, if known: the cost of the fork. A terminal window that smart-fork
    did not open has the `agent_type` ``?`` and a location only.
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
        """Return an answer of this subclass with the values of `known`, and the further values `also`."""
        return cls(**{one.name: getattr(known, one.name) for one in fields(known)}, **also)

    def as_json(self) -> dict[str, Any]:
        """Return the values as a dictionary for JSON; of a window that smart-fork did not open, only its location."""
        told = super().as_json()
        return {key: told[key] for key in _OF_OTHERS} if self.worker_id is None else told


@record
class WorkerRead(WorkerState):
    """A worker with its last messages. `earlier` counts its own messages before these; `next` suggests a next step."""

    next: str = rare("")
    notice: str = rare("")
    messages: tuple[Message, ...]
    earlier: int


@record
class WorkerMessaged(WorkerState):
    """A worker to which a message was delivered. `how`: typed, queued, answered (an option was chosen) or resumed."""

    how: str
    warnings: tuple[str, ...]


@record
class WorkerWaited(WorkerState):
    """A worker that the caller waited for, with its last message.

    `settled` is true if it is idle, waits for an answer, or has ended.
    """

    settled: bool
    last_words: str


@record
class WorkersWaited(Value):
    """The workers that the caller waited for. `done` is false if time ran out; `next` suggests a next step."""

    done: bool
    next: str = rare("")
    notice: str = rare("")
    workers: tuple[WorkerWaited, ...]


@value
class WorkerClosed(Value):
    """The result of ending one worker. `closed` is true if the worker was running and has been ended.

    `note` says why it was not ended (`failed` if it could not be), or why its worktree was kept.
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


@record
class Compared(Value):
    """One worker (an agent that smart-fork started) in a comparison: its last answer, its changes, its cost.

    `seconds` is the time from its start to its last activity. `files` and `diff` compare its files with the commit that
    it started from. Unknown values are null; `notes` say why.
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
        """Return facts about the worker as pairs of label and text; unknown facts have the text "unknown"."""
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
        lines = f", +{self.lines_added} -{self.lines_removed}"
        return f"{number} file{'' if number == 1 else 's'}{lines}" if number else "none"
