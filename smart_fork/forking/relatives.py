"""What is answered about branches and families: values."""

from __future__ import annotations

from indexer.masking import Masked
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare, record, value
from smart_fork.finding.conversation import CommitsMade
from smart_fork.forking.selection import Selection
from smart_fork.forking.started import Forked


@value
class Named(Value):
    """A session and what it is called."""

    session_id: str
    title: str


@record
class Branched(Value):
    """The answer of ``branch_session``."""

    session_id: str
    agent_type: AgentName
    title: str
    path: str
    copied: int
    parent: Named
    at: int
    working_directory: str
    warnings: tuple[str, ...]
    resume_command: str
    resume_original: str
    selection: Selection | None = rare()
    started: Forked | None = rare()


@value
class LeftAt(Value):
    """The last message that a fork has from its parent."""

    message: int
    role: str
    text: Masked


@record
class Running(Value):
    """A worker that has the session now."""

    worker_id: str
    kind: str
    name: str
    place: str
    status: str
    attach: str


@record
class Relative(Value):
    """One session of a family. `depth` is 0 for the first of all.

    It is a fork of `parent`, and has something of those in `merged_from` behind that.
    """

    depth: int
    session_id: str
    agent_type: AgentName
    parent: str | None
    merged_from: tuple[str, ...] = rare(())
    left_parent_at: LeftAt | None
    log_gone: bool
    title: str
    started: str
    last_activity: str
    begun: str
    turns: int
    token_estimate: int
    working_directory: str
    project_inferred_from: str = rare("")
    jsonl_path: str | None
    copies: tuple[str, ...]
    resume_command: str | None
    started_by: str | None
    running: Running | None
    commits: CommitsMade | None = rare()


@record
class Family(Value):
    """The answer of ``session_lineage``. `left_out` says what of a very long log was not read."""

    session_id: str
    agent_type: AgentName
    notice: str
    count: int
    return_command: str | None
    left_out: str = rare("")
    sessions: tuple[Relative, ...]
