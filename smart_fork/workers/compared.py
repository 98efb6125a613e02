"""What comparing workers answers: values."""

from __future__ import annotations

from indexer.masking import NOTHING, Masked
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare, record, value
from smart_fork.conversation import Noted
from smart_fork.repository.file_change import FileChange


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
    noted: Noted | None = rare()
    notes: tuple[str, ...] = ()
    lines_added: int | None = None
    lines_removed: int | None = None


@value
class Comparison(Value):
    """Workers side by side."""

    notice: str = rare("")
    workers: tuple[Compared, ...] = ()
