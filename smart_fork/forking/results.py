"""Answers about forks, branches, families and other workers: values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Literal, Self

from indexer.masking import Masked
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare, record, spread, value
from smart_fork.finding.session_view import CommitsMade

#: How much of an exchange is kept: all; all, with long results shortened; what was asked, done and answered, without
#: what was only looked at; what was asked and answered; nothing.
Kept = Literal["whole", "shortened", "part", "words", "nothing"]


@record
class SelectedExchange(Value):
    """One exchange: `number`, from 1, as ``--keep`` takes it, `message` as ``show`` numbers its first message.

    `tokens` is what all of it takes, `kept_tokens` what is kept of it. `why` says what it is kept for.
    """

    number: int
    message: int
    title: Masked
    tokens: int
    kept: Kept
    kept_tokens: int
    why: str = rare("")


@record
class Selection(Value):
    """The content of a fork within a budget. `tokens` is what it loads beside its agent's instructions and tools,
    `whole_tokens` what the full session would load.

    `new_from` is the first message that is dropped or shortened: before it a fork by the session's own agent sends what
    the session has sent, which may come from the cache. `smallest` says that nothing smaller can be kept, though it is
    above the budget; `whole` that all of it is forked.
    """

    session_id: str
    budget: str
    tokens: int
    whole_tokens: int
    kept: int
    left_out: int
    smallest: bool = rare(default=False)
    whole: bool = rare(default=False)
    new_from: int | None = rare()
    notes: tuple[str, ...] = rare(())
    exchanges: tuple[SelectedExchange, ...]


@value
class ForkPrice(Value):
    """About how many tokens a fork loads, and how many all of its session would.

    `cached` says that its model still has them in its cache, where reading them costs a fraction, and `cached_until`
    until when; without it the log does not say it. Of a fork within a budget these are the first `cached_tokens`.
    """

    tokens: int
    whole_tokens: int
    cached: bool = False
    cached_until: str = rare("")
    cached_tokens: int = rare(0)


@value
class Way(Value):
    """A way to fork a session: its option (empty for all of it), and about how many tokens that loads.

    Of all of it, `conversation` are the conversation; the rest is instructions and tools. Its model was last sent these
    at `used_at`; what has another form than before was never sent. What is cached is told as in `ForkPrice`.
    `carries` says whether it has the exchange that matched, where the whole session has forgotten that.
    """

    option: str
    tokens: int
    cached: bool = False
    used_at: str = rare("")
    conversation: int = rare(0)
    cached_until: str = rare("")
    cached_tokens: int = rare(0)
    carries: bool | None = rare(None)


@value
class Handed(Value):
    """The size of a handover from a session of `from_agent`: exchanges and estimated tokens.

    Of `earlier` ones it knows the titles alone, `left_out` are messages of a last exchange that is too large by itself;
    `lost` counts what no other agent can be told.
    """

    from_agent: AgentName
    session_id: str
    exchanges: int
    tokens: int
    lost: Mapping[str, int]
    earlier: int = rare(0)
    left_out: int = rare(0)


@record
class Forked(Value):
    """A fork that was started."""

    # `session_name` is the worker's name, `resume_session_id` the session that was forked, `new_session_id` the fork's
    # own (`None` where the agent had not told it in time), `command` one line for display, `attach` what shows the
    # worker. `confirmed` says that it was seen to take its prompt, or to be ready for one. `selection` is what a fork
    # within a budget has of the session, `merged` what it has of others, `handed` what it was told of another agent's,
    # `news` what has changed in the repository, as it was told before its prompt; `ways` are what a dry run compares;
    # `resolved` as what the session was found that was named.
    session_name: str
    worker_id: str
    terminal_id: str | None
    resume_session_id: str
    new_session_id: str | None
    command: str
    cwd: str
    place: str
    log: str | None = None
    attach: str = ""
    warnings: tuple[str, ...] = ()
    confirmed: bool = False
    kind: str = "fork"
    agent_type: AgentName
    selection: Selection | None = rare()
    merged: tuple[Selection, ...] = rare(())
    news: str = rare("")
    handed: Handed | None = rare()
    price: ForkPrice | None = rare()
    ways: tuple[Way, ...] = rare(())
    chosen: Mapping[str, int | None] = spread(forked_index=int | None)
    resolved: str = rare("")


@record
class NotForked(Value):
    """A fork that could not be started, and why."""

    resume_session_id: str
    session_name: str | None
    error: str
    hint: str


@value
class FannedOut(Value):
    """The forks that one prompt was given to, and how many that were found fit too little."""

    prompt: str
    forks: tuple[Forked | NotForked, ...]
    left_out: int = rare(0)


@record
class StartedWorker(Value):
    """A worker that was started. `session_id` is its own, `source_session_id` that of what it forked or goes on with.

    `worktree` and `branch` are those that were made for it. `confirmed` says that it was seen to take its prompt, or to
    be ready for one. `news` is what a fork was told before its prompt.
    """

    worker_id: str
    session_id: str | None
    agent_type: AgentName
    name: str
    kind: str
    source_session_id: str | None
    cwd: str
    worktree: str | None
    branch: str | None
    place: str
    terminal_id: str | None
    log: str | None
    attach: str
    command: str
    warnings: tuple[str, ...]
    confirmed: bool
    news: str = rare("")


@record
class Numbered(Value):
    """One of several that were asked for."""

    index: int


@record
class SpawnedWorker(StartedWorker, Numbered):
    """One worker that was asked for: what was started, or `error`, `message` and `hint`."""

    @classmethod
    def numbered(cls, index: int, worker: StartedWorker, notes: Sequence[str]) -> Self:
        """A worker that was started as one of several; `notes` come before its warnings."""
        known = {one.name: getattr(worker, one.name) for one in fields(worker)}
        return cls(**known | {"index": index, "warnings": (*notes, *worker.warnings)})


@value
class NotSpawned(Value):
    """One worker that was asked for and could not be started."""

    index: int
    error: str
    message: str
    hint: str


@value
class Spawned(Value):
    """The answer of ``spawn_workers``."""

    started: int
    failed: int
    workers: tuple[SpawnedWorker | NotSpawned, ...]


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
