"""Answers to the user or model: forks, branches, families and started workers, as values that become JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Literal, Self

from indexer.json_values import Value, rare, record, spread, value
from indexer.masking import Masked
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.display_text import in_words
from smart_fork.errors import advice
from smart_fork.finding.answer import CommitsMade
from smart_fork.finding.fork_suitability import age_of, cache_in_words

if TYPE_CHECKING:
    from smart_fork.workers.registry import WorkerRecord

#: The kept part of an exchange: everything; everything with long results shortened; prompt, edits and answer without
#: read-only steps; prompt and answer; nothing.
Kept = Literal["whole", "shortened", "part", "words", "nothing"]


@record
class SelectedExchange(Value):
    """One exchange (a prompt and its answer) of a session, numbered from 1, and how much of it a budget keeps.

    `message` is the number of its first message in the command ``show``. `tokens` is its full size.
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
    """The exchanges (a prompt and its answer) of a session that a budget keeps, and their size in `tokens`.

    `new_from` is the first dropped or shortened message: the model's cache may hold what is before it. `smallest` is
    true if even the smallest choice exceeds the budget. `whole` is true if everything is kept.
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
    """The estimated tokens that a fork loads, and those of a fork of the whole session.

    `cached` is true if the model's cache still holds them all, which costs a fraction, until `cached_until` (empty if
    unknown). Within a budget, it holds only the first `cached_tokens`.
    """

    tokens: int
    whole_tokens: int
    cached: bool = False
    cached_until: str = rare("")
    cached_tokens: int = rare(0)


@value
class Way(Value):
    """One way to fork a session: its option (empty for the whole session), and the estimated tokens that it loads.

    `conversation` is a whole session's share without instructions and tools. `used_at` is the time when the model last
    received the tokens in this form. If a compaction removed the best answer from the context, `carries` says whether
    this way includes it.
    """

    option: str
    tokens: int
    cached: bool = False
    used_at: str = rare("")
    conversation: int = rare(0)
    cached_until: str = rare("")
    cached_tokens: int = rare(0)
    carries: bool | None = rare(None)

    @property
    def parts(self) -> str:
        """Return a sentence on the whole session: its tokens of conversation, and of instructions and tools.

        Return "" for another way, or if these numbers are unknown.
        """
        if not self.conversation:
            return ""
        rest = self.tokens - self.conversation
        return (
            f"Whole session: {self.tokens:,} tokens "
            f"(conversation {self.conversation:,}; instructions and tools {rest:,})"
        )

    @property
    def last_use(self) -> str:
        """Say when the model last received these tokens, and whether they are cached and include the best answer."""
        carried = {None: "", True: "carries the match", False: "has forgotten the match"}[self.carries]
        age, cached = age_of(self.used_at), cache_in_words(self.cached_until, self.cached_tokens)
        if age is not None:
            used = [f"used {in_words(age)} ago", cached]
        else:
            used = ["last use unknown"] if self.used_at else ["another form", cached or "not cached"]
        return ", ".join(filter(None, (*used, carried)))


#: The kind of lost parts that are masked secrets.
SECRETS = "secrets"


def counted(lost: Mapping[str, int]) -> str:
    """Return the lost parts by kind, as in "thinking (3), images (1)"."""
    return ", ".join(f"{what} ({number})" for what, number in lost.items())


@value
class HandoverSize(Value):
    """The size of a handover (a session as text for another agent): its exchanges and estimated tokens.

    `earlier` counts exchanges that were dropped from the beginning, `left_out` messages dropped from a last exchange
    that alone is too large. `lost` counts, by kind, the parts that no other agent can receive.
    """

    from_agent: AgentName
    session_id: str
    exchanges: int
    tokens: int
    lost: Mapping[str, int]
    earlier: int = rare(0)
    left_out: int = rare(0)

    def notes(self, agent: AgentName) -> list[str]:
        """Return notes for the user on a handover to `agent`: its size, and the parts of the session that it lacks."""
        own, theirs = AGENTS.title_of(agent), AGENTS.title_of(self.from_agent)
        many = f"{self.exchanges} exchange{'s' * (self.exchanges != 1)}"
        said = [f"{own} receives {many} of this {theirs} session, about {self.tokens:,} tokens"]
        if self.earlier:
            said.append(
                f"{self.earlier} earlier ones are dropped: the whole session exceeds its model's context window"
            )
        if self.left_out:
            said.append(
                f"{self.left_out} messages of the last exchange are dropped: it exceeds its model's context window"
            )
        lost = dict(self.lost)
        if masked := lost.pop(SECRETS, 0):
            how = advice("--unmasked hands them over", tool="unmasked: true hands them over, if the user wants that")
            said.append(f"Masked secrets: {masked} ({how})")
        if lost:
            said.append(f"Not handed over: {counted(lost)}")
        return said


@record
class Forked(Value):
    """The answer about a fork: it was started, or in a dry run it would be."""

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
    handed: HandoverSize | None = rare()
    price: ForkPrice | None = rare()
    ways: tuple[Way, ...] = rare(())
    chosen: Mapping[str, int | None] = spread(forked_index=int | None)
    resolved: str = rare("")


@record
class NotForked(Value):
    """The answer about one fork that could not be started, with the reason."""

    resume_session_id: str
    session_name: str | None
    error: str
    hint: str


@value
class FannedOut(Value):
    """The answer about several forks with one prompt. `left_out` counts found sessions with too low a score."""

    prompt: str
    forks: tuple[Forked | NotForked, ...]
    left_out: int = rare(0)


@record
class StartedWorker(Value):
    """The answer about a started worker (an agent that smart-fork runs).

    `source_session_id` is the session that it forked or resumed. `worktree` and `branch` (of git) were made for it.
    `confirmed` is true if it was seen to take its prompt, or to be ready for one. `news` are notes on changes in the
    repository, put before a fork's prompt.
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

    @classmethod
    def of(cls, worker: WorkerRecord, command: str, warnings: Sequence[str], *, confirmed: bool, news: str) -> Self:
        """Return the answer about a worker, from its row in the registry."""
        return worker.told(
            cls, source_session_id=worker.source_session_id or None, log=worker.log_path, command=command,
            warnings=tuple(warnings), confirmed=confirmed, news=news,
        )  # fmt: skip


@record
class NumberedResult(Value):
    """The result for one of several requested workers. `index` is its position in the request, from 0."""

    index: int


@record
class SpawnedWorker(StartedWorker, NumberedResult):
    """The result for one of several requested workers that was started."""

    @classmethod
    def numbered(cls, index: int, worker: StartedWorker, notes: Sequence[str]) -> Self:
        """Return the result for the started `worker` at position `index`, with `notes` before the worker's warnings."""
        known = {one.name: getattr(worker, one.name) for one in fields(worker)}
        return cls(**known | {"index": index, "warnings": (*notes, *worker.warnings)})


@value
class NotSpawned(Value):
    """The result for one of several requested workers that could not be started, with the reason."""

    index: int
    error: str
    message: str
    hint: str


@value
class Spawned(Value):
    """The answer of the tool ``spawn_workers``: one result for each requested worker."""

    started: int
    failed: int
    workers: tuple[SpawnedWorker | NotSpawned, ...]


@value
class NamedSession(Value):
    """A session and its title."""

    session_id: str
    title: str


@record
class Branched(Value):
    """The answer of the tool ``branch_session``: the copy of a session, and how to resume it."""

    session_id: str
    agent_type: AgentName
    title: str
    path: str
    copied: int
    parent: NamedSession
    at: int
    working_directory: str
    warnings: tuple[str, ...]
    resume_command: str
    resume_original: str
    selection: Selection | None = rare()
    started: Forked | None = rare()


@value
class LeftAt(Value):
    """The last message that a fork shares with its parent."""

    message: int
    role: str
    text: Masked


@record
class RunningWorker(Value):
    """The running worker (an agent that smart-fork started) that has a session of the family open."""

    worker_id: str
    kind: str
    name: str
    place: str
    status: str
    attach: str


@record
class Relative(Value):
    """One session of a family (ancestors and forks). `depth` is 0 for the oldest ancestor, 1 for its forks.

    It is a fork of `parent`, and also has text of the sessions in `merged_from`.
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
    running: RunningWorker | None
    commits: CommitsMade | None = rare()


@record
class Family(Value):
    """The answer of the tool ``session_lineage``: a session's ancestors and forks.

    `left_out` says which part of the session's log was too long to be read.
    """

    session_id: str
    agent_type: AgentName
    notice: str
    count: int
    return_command: str | None
    left_out: str = rare("")
    sessions: tuple[Relative, ...]
