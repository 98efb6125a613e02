"""The data classes of an answer to a question about past sessions. The command line, MCP and scripts use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from indexer.log_changes import Report
from indexer.runs import FailedLog, LastRun
from indexer.store.base import Counts
from indexer.transcripts.model import AgentName, Session
from indexer.values import Value, rare, record, spread, value
from smart_fork.display_text import ago, minute, printable
from smart_fork.finding.session_view import Hit, SessionNotes

Mode = Literal["hybrid", "vector", "lexical", "recent", "lines"]


@value
class TeamState(Value):
    """The team's server and project, and how many sessions it searched. `by_words_only` counts those without
    embeddings.
    """

    server: str
    project: str
    sessions: int
    by_words_only: int


@value
class GonePrompt(Value):
    """A prompt of a session that its agent deleted before smart-fork read it. `prompts` counts its known ones."""

    session_id: str
    agent_type: AgentName
    project_path: str
    prompted_at: str
    prompt: str
    prompts: int


@value
class AskedCode(Value):
    """The number of lines of the code that a question is about, and how many of them have no known session."""

    lines: int
    unknown: int


@value
class Cause(Value):
    """A change of lines of code, and the session that made it, if known.

    `asked` is the prompt that led to the change, `ends_at_message` the message to fork after. `commit` is empty for
    uncommitted lines. The session wrote `lines` of the change's `of` lines.
    """

    commit: str
    date: str
    subject: str
    session_id: str | None = None
    agent_type: AgentName | None = None
    exchange: int | None = None
    ends_at_message: int | None = None
    asked: str | None = None
    lines: int | None = None
    of: int | None = None


@value
class Causes(Value):
    """The newest changes of some lines or of a file, newest first. `more` counts the older ones not listed."""

    lines: str
    notice: str
    count: int
    changes: tuple[Cause, ...]
    more: int = rare(0)
    unread_notice: str = rare("")


@value
class Fix(Value):
    """A way in which a session ended an error: the actions (`ended_by`) after which the error no longer occurred.

    `asked` is the prompt of that part of the session. `score` is the chance that the actions help again.
    """

    session_id: str
    agent_type: AgentName
    title: str
    last_activity: str
    score: float
    exchange: int
    ends_at_message: int | None
    asked: str
    ended_by: tuple[str, ...]
    noted: SessionNotes | None = rare()


@value
class Fixes(Value):
    """Fixes of an error, likeliest first. The error has `lines` lines; `met` sessions printed one of them."""

    notice: str
    count: int
    lines: int
    met: int
    fixes: tuple[Fix, ...]
    unread_notice: str = rare("")


@value
class Covered(Value):
    """The shares (0…1) of passages with an embedding: of the first passage after each prompt, and of all passages.

    A passage is a piece of a session's text.
    """

    first_passages: float
    all_passages: float


@record
class IndexState(Value):
    """The completeness of the index for an answer. `seconds_left` estimates when everything is embedded."""

    sessions: int
    chunks: int
    embedded: int
    covered: Covered
    complete: bool
    unread_logs: int | None = None
    updated_at: str = ""
    problem: str = rare("")
    seconds_left: int = rare(0)


@record
class RecentSession(Value):
    """A session in a list of recent sessions.

    `headline` is the title, or another line about the work if the title does not describe it. `began_in` is set if the
    session began in another directory and only worked in the listed project.
    """

    session_id: str
    agent_type: AgentName
    title: str
    headline: str = rare("")
    project_path: str
    project_inferred_from: str = rare("")
    began_in: str = rare("")
    git_branch: str = ""
    last_modified: str
    source_path: str | None = None
    jsonl_path: str
    author: str = rare("")
    noted: SessionNotes | None = rare()
    forked_from: str = rare("")


@value
class SharedSession(Value):
    """A session that the team shares, as an entry of a list. `also_local` is the id of its copy on this machine."""

    session_id: str
    agent_type: AgentName
    title: str
    owner: str
    visibility: str
    git_branch: str
    last_activity: str
    turns: int
    also_local: str | None = rare()


@dataclass(frozen=True, slots=True)
class SharedReading:
    """The content of a session that a teammate shares, and its owner."""

    session: Session
    owner: str
    title: str


@value
class SharedSessions(Value):
    """The newest sessions that the team shares, or the error that prevented the listing."""

    sessions: tuple[SharedSession, ...] = ()
    error: str = ""


@value
class Recents(Value):
    """The newest sessions of this machine and, in `shared`, those of the team.

    `hidden_automated` counts unlisted sessions that a program started. `unread` says which agents' logs cannot be read,
    and why. `passed_over` are files among the logs that hold no session. `project_notice` says why the project may have
    more sessions.
    """

    count: int
    notice: str = rare("")
    sessions: tuple[RecentSession, ...] = ()
    hidden_automated: int | None = rare()
    unread: tuple[str, ...] = rare(())
    passed_over: tuple[FailedLog, ...] = rare(())
    project_notice: str = rare("")
    gone_prompts: tuple[GonePrompt, ...] = rare(())
    shared: tuple[SharedSession, ...] | None = rare()
    team_error: str = rare("")


@record
class Found(Value):
    """The answer of a search for past sessions. If no result is good, `next` says what to do.

    If the request also asks for a fork and none was started, `error` and `hint` say why. `next_steps` are the calls
    that start it.
    """

    query: str
    also: tuple[str, ...] = rare(())
    agent_type: str
    collections: tuple[str, ...]
    project_path: str | None
    notice: str
    project_notice: str = rare("")
    background_notice: str = rare("")
    early_notice: str = rare("")
    unread_notice: str = rare("")
    language_notice: str = rare("")
    count: int
    engine: str
    search_mode: Mode
    fallback_used: bool
    search_error: str = rare("")
    rerank_error: str = rare("")
    said: Mapping[str, Any] = spread(qmd_command=str | None, qmd_error=str)
    index: IndexState
    skipped: int = rare(0)
    order_notice: str = rare("")
    code: AskedCode | None = rare()
    results: tuple[Hit, ...]
    fallback_sessions: tuple[RecentSession, ...] | None = rare()
    index_notice: str = rare("")
    team: TeamState | None = rare()
    team_error: str = rare("")
    agents_notice: str = rare("")
    unread: tuple[str, ...] = rare(())
    passed_over: tuple[FailedLog, ...] = rare(())
    gone_prompts: tuple[GonePrompt, ...] = rare(())
    error: str = rare("")
    hint: str = rare("")
    next_steps: tuple[str, ...] = rare(())
    forked_session: Value | None = rare()  # a `Forked`
    resolved: str = rare("")
    next: str = rare("")


@record
class TeamFound(Value):
    """The answer of a search in the sessions that the team shares, without local sessions."""

    query: str
    also: tuple[str, ...] = rare(())
    notice: str
    count: int
    results: tuple[Hit, ...]
    team: TeamState


@record
class Unsearched(Value):
    """The answer if the index could not be searched: the reason, the next steps, and the most recent sessions."""

    error: str
    message: str
    next_steps: tuple[str, ...]
    fallback_sessions: tuple[RecentSession, ...] = ()
    team: TeamState | None = rare()
    team_error: str = rare("")
    hint: str = rare("")
    forked_session: Value | None = rare()  # a `Forked`
    resolved: str = rare("")
    next: str = rare("")


@value
class KnownExchange(Value):
    """An exchange (a prompt with its answer) of a session: its number from 1, its first message and its prompt."""

    exchange: int
    message: int | None
    asked: str


@value
class Exchanges(Value):
    """The exchanges (prompts with their answers) of one session that answer a question, best first.

    `total` counts all exchanges of the session. `search_error` says why words, meaning or both were not compared.
    """

    query: str
    session_id: str
    agent_type: str
    notice: str
    total: int
    exchanges: tuple[KnownExchange, ...]
    search_error: str = rare("")


@value
class BrokenLog(Value):
    """A session log with undecodable lines. `first` has some of them as ``[line, reason]``."""

    path: str
    lines: int
    first: tuple[tuple[int | str, ...], ...]


@record
class IndexStatus(Value):
    """The content, freshness and completeness of the index, as ``smart-fork index status`` prints them."""

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
    last_run: LastRun | None
    next_run: str | None
    skipped: Mapping[str, int]
    erased: bool
    broken_lines: int
    broken_logs: tuple[BrokenLog, ...]
    passed_over: tuple[FailedLog, ...]

    def last_run_in_words(self) -> str:
        """Describe the last index run in a line: time, result, read logs, embedded passages, failures."""
        if (run := self.last_run) is None:
            return "none yet"
        did = f"{run.read} of {run.logs} logs read, {run.embedded} passages embedded"
        failed = f", {run.failed_logs} logs could not be read" if run.failed_logs else ""
        why = f": {printable(run.error)}" if run.error else ""
        return f"{ago(run.started_at)}, {run.outcome} after {run.seconds:.0f} s{why}; {did}{failed}"

    def next_run_in_words(self) -> str:
        """Return the time of the next index update in words."""
        return f"at {minute(self.next_run)}" if self.next_run else "with the next search"


@record
class Held(Counts):
    """The content of the index after an index run: its counts, and the shares of passages with an embedding."""

    covered: Covered


@dataclass(kw_only=True)
class Indexed(Report):
    """The report of a full index run, and the content of the index after it."""

    total_seconds: float = 0.0
    index: Held
    engine: str
    broken_logs: tuple[BrokenLog, ...]
    passed_over: tuple[FailedLog, ...]


Answer = Found | Unsearched
