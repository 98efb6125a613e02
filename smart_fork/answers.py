"""The shapes of what the tools answer, for the output schemas that clients are shown. Keys are added, never renamed."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict


class Match(TypedDict, total=False):
    """Where in the session the answer stands, what a fork there loads, and why: the intent's words, the similarity."""

    turn_index: int | None
    message_id: str | None
    exchange: int | None
    ends_at_message: int | None
    token_estimate: int | None
    role: str | None
    words: list[str]
    similarity: float | None


class Lineage(TypedDict, total=False):
    """The session's family: what it was forked from, its forks, and other members."""

    parent: str | None
    forks: list[str]
    family_size: int
    others: list[str]


class ToldBy(TypedDict):
    """What one phrasing of the question found in a session: its share of the points, its words in the passage."""

    text: str
    points: dict[str, float]
    words: list[str]


class Explanation(TypedDict, total=False):
    """How a score came about: ``1 / (1 + exp(against - sum of the points))``; `reranked` is the score after that.

    `phrasings` says what each phrasing of the question has found, where there are several.
    """

    points: dict[str, float]
    against: float
    score: float
    reranked: float
    phrasings: list[ToldBy]


class Drift(TypedDict, total=False):
    """Of the files that the session edited in the repository, how many have changed in git since."""

    files: int
    changed: int
    share: float


class Price(TypedDict):
    """What a fork loads."""

    tokens: int
    tokens_at_match: int | None


class Result(TypedDict, total=False):
    """One session."""

    rank: int
    score: float
    session_id: str
    agent_type: str
    title: str
    working_directory: str
    project_inferred_from: str
    repo_root: str | None
    git_branch: str | None
    date: str
    last_activity: str
    snippet: str
    said_by: str | None
    match: Match
    explain: Explanation
    turns: int
    token_estimate: int
    outcome: str
    drift: Drift | None
    price: Price
    lineage: Lineage
    source_path: str
    lines: list[int] | None
    jsonl_path: str | None
    can_fork: bool
    warning: str
    fork_command: str


class Covered(TypedDict):
    """The shares of the passages that exchanges begin with, and of all, that can be found by their meaning."""

    first_passages: float
    all_passages: float


class IndexState(TypedDict, total=False):
    """How complete the answer can be."""

    sessions: int
    chunks: int
    embedded: int
    covered: Covered
    complete: bool
    unread_logs: int | None
    updated_at: str
    problem: str


class RecentSession(TypedDict, total=False):
    """A session as lists show it."""

    session_id: str
    agent_type: str
    title: str
    project_path: str
    project_inferred_from: str
    git_branch: str
    last_modified: str
    source_path: str | None
    jsonl_path: str


class Forked(TypedDict, total=False):
    """A fork that was started."""

    session_name: str
    worker_id: str
    terminal_id: str | None
    resume_session_id: str
    new_session_id: str | None
    agent_type: str
    command: str
    cwd: str
    place: str
    log: str | None
    attach: str
    warnings: list[str]
    confirmed: bool
    kind: str
    forked_index: int | None


class SpawnedWorker(TypedDict, total=False):
    """One worker that was asked for: what was started, or `error`, `message` and `hint`."""

    index: int
    worker_id: str
    session_id: str | None
    agent_type: str
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
    warnings: list[str]
    confirmed: bool
    error: str
    message: str
    hint: str


class Spawned(TypedDict):
    """The answer of ``spawn_workers``."""

    started: int
    failed: int
    workers: list[SpawnedWorker]


class Found(TypedDict, total=False):
    """The answer of ``smart_fork`` and ``find_sessions``. `next` says how to find it, where it is not found yet."""

    query: str
    also: list[str]
    agent_type: str
    collections: list[str]
    project_path: str | None
    notice: str
    project_notice: str
    index_notice: str
    background_notice: str
    language_notice: str
    agents_notice: str
    order_notice: str
    count: int
    engine: str
    search_mode: str
    fallback_used: bool
    search_error: str
    qmd_command: str | None
    qmd_error: str
    rerank_error: str
    index: IndexState
    skipped: int
    results: list[Result]
    fallback_sessions: list[RecentSession]
    forked_session: Forked
    error: str
    hint: str
    message: str
    next_steps: list[str]
    next: str


class Recent(TypedDict):
    """The answer of ``list_sessions``."""

    count: int
    notice: str
    sessions: list[RecentSession]
    hidden_automated: NotRequired[int]


class Message(TypedDict):
    """One message of a conversation."""

    number: int
    message_id: str
    role: str
    timestamp: str
    text: str


class Conversation(TypedDict, total=False):
    """The answer of ``read_session``. `next_at` is where to read on, when the messages did not all fit."""

    session_id: str
    agent_type: str
    title: str
    working_directory: str
    project_inferred_from: str
    last_activity: str
    notice: str
    messages: list[Message]
    next_at: int | None
    markdown: str


class BrokenLog(TypedDict):
    """A log with lines that could not be decoded; `first` are some of them as ``[line, reason]``."""

    path: str
    lines: int
    first: list[list[int | str]]


class FailedLog(TypedDict):
    """A log that could not be read."""

    path: str
    reason: str


class IndexRun(TypedDict, total=False):
    """What became of a run over all logs; `outcome` is completed, failed, cancelled or skipped."""

    started_at: str
    seconds: float
    outcome: str
    error: str | None
    logs: int
    read: int
    resumed: int
    bytes_read: int
    sessions: int
    removed: int
    embedded: int
    waiting: int
    failed_logs: int
    failed: list[FailedLog]


class Status(TypedDict, total=False):
    """The answer of ``index_status``. Where the index cannot be used: `error`, `message` and `next_steps` instead."""

    error: str
    message: str
    next_steps: list[str]
    index: str
    exports: str
    bytes: int
    model: str | None
    logs: int
    unread_logs: int
    sessions: int
    chunks: int
    embedded: int
    covered: Covered
    complete: bool
    updated_at: str | None
    last_run: IndexRun | None
    next_run: str | None
    skipped: dict[str, int]
    erased: bool
    broken_lines: int
    broken_logs: list[BrokenLog]


class Named(TypedDict):
    """A session and what it is called."""

    session_id: str
    title: str


class Branched(TypedDict, total=False):
    """The answer of ``branch_session``."""

    session_id: str
    agent_type: str
    title: str
    path: str
    copied: int
    parent: Named
    at: int
    working_directory: str
    warnings: list[str]
    resume_command: str
    resume_original: str
    started: Forked


class LeftAt(TypedDict):
    """The last message that a fork has from its parent."""

    message: int
    role: str
    text: str


class Running(TypedDict):
    """A worker that has the session now."""

    worker_id: str
    kind: str
    name: str
    place: str
    status: str
    attach: str


class Relative(TypedDict):
    """One session of a family. `depth` is 0 for the first of all."""

    session_id: str
    agent_type: str
    depth: int
    parent: str | None
    left_parent_at: LeftAt | None
    log_gone: bool
    title: str
    begun: str
    started: str
    last_activity: str
    turns: int
    token_estimate: int
    working_directory: str
    project_inferred_from: NotRequired[str]
    jsonl_path: str | None
    copies: list[str]
    resume_command: str | None
    started_by: str | None
    running: Running | None


class Family(TypedDict):
    """The answer of ``session_lineage``."""

    session_id: str
    agent_type: str
    notice: str
    count: int
    return_command: str | None
    sessions: list[Relative]


class WorkerState(TypedDict, total=False):
    """A worker and what it does. Of a window that is not ours, only where it is: its `agent_type` is ``?``."""

    worker_id: str | None
    session_id: str | None
    agent_type: str
    kind: str
    name: str
    prompt: str
    state: str
    status: str | None
    waiting_for: str | None
    last_activity: str
    tokens: int
    started_at: str
    source_session_id: str | None
    cwd: str
    branch: str | None
    place: str
    terminal_id: str | None
    attach: str
    log: str | None


class Workers(TypedDict):
    """The answer of ``list_workers``. `next` says what to do about one that asks or has failed."""

    count: int
    notice: str
    workers: list[WorkerState]
    next: NotRequired[str]


class WorkerRead(WorkerState, total=False):
    """The answer of ``read_worker``: the last messages of the worker's own, how many come before them, what to do."""

    next: str

    notice: str
    messages: list[Message]
    earlier: int


class WorkerMessaged(WorkerState, total=False):
    """The answer of ``message_worker``: whether it was typed, queued, answered, or the worker resumed with it."""

    how: str
    warnings: list[str]


class WorkerWaited(WorkerState, total=False):
    """One worker that was waited for. `settled` says whether it is idle, asks something or has ended."""

    settled: bool
    last_words: str


class WorkersWaited(TypedDict, total=False):
    """The answer of ``wait_workers``. `done` is false when the time was over first. `next` says what to do."""

    done: bool
    next: str
    notice: str
    workers: list[WorkerWaited]


class WorkerClosed(TypedDict, total=False):
    """One worker that was to be ended; `note` says why it was not, or why its worktree is still there."""

    worker_id: str
    session_id: str | None
    agent_type: str
    kind: str
    name: str
    closed: bool
    worktree_removed: bool | None
    note: str


class WorkersClosed(TypedDict):
    """The answer of ``close_workers``."""

    workers: list[WorkerClosed]
