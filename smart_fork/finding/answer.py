"""The data classes of an answer to a question about past sessions. The command line, MCP and scripts use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from indexer.json_values import Value, rare, record, spread, value
from indexer.masking import Masked
from indexer.runs import FailedLog
from indexer.transcripts.model import AgentName, Session
from smart_fork.finding.hit import Hit
from smart_fork.finding.session_notes import SessionNotes

Mode = Literal["hybrid", "vector", "lexical", "recent", "lines"]


@value
class TeamState(Value):
    """The team's server and project, and how many sessions it searched; `by_words_only` of them lack embeddings."""

    server: str
    project: str
    sessions: int
    by_words_only: int


@value
class DeletedPrompt(Value):
    """A prompt of a session deleted before smart-fork read it. `prompts` counts the session's known prompts."""

    session_id: str
    agent_type: AgentName
    project_path: str
    prompted_at: str
    prompt: str
    prompts: int


@value
class AskedCode(Value):
    """The size of the code in a question: its lines, and how many of them no known session wrote."""

    lines: int
    unknown: int


@value
class Cause(Value):
    """A change of lines of code, and the session that made it, if known.

    `asked` is the prompt that led to the change, `ends_at_message` the message to fork after. `commit` is empty for
    uncommitted lines. Of the change's `of` lines, the session wrote `lines`.
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
    """The actions (`ended_by`) after which an error no longer occurred in a session.

    `asked` is the prompt that led to these actions. `score` is the chance that they help again.
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
    """Fixes of an error of `lines` lines, likeliest first. `met` counts the sessions that printed such a line."""

    notice: str
    count: int
    lines: int
    met: int
    fixes: tuple[Fix, ...]
    unread_notice: str = rare("")


@value
class EmbeddedShares(Value):
    """The shares (0…1) of passages with an embedding: of the first passages after prompts, and of all.

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
    covered: EmbeddedShares
    complete: bool
    unread_logs: int | None = None
    updated_at: str = ""
    problem: str = rare("")
    seconds_left: int = rare(0)


@record
class RecentSession(Value):
    """A session in a list of recent sessions.

    `headline` is the title, or a line that describes the work better. `began_in` is set if the session began in another
    directory and worked in the listed project later.
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
    """A session that the teammate `owner` shares, with its messages."""

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
    gone_prompts: tuple[DeletedPrompt, ...] = rare(())
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
    gone_prompts: tuple[DeletedPrompt, ...] = rare(())
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


Answer = Found | Unsearched


@value
class MadeCommit(Value):
    """A commit with a session's work: of the `of` lines that it adds, the session wrote `lines`.

    If it wrote none, the commit's message names the session.
    """

    commit: str
    date: str
    subject: Masked
    lines: int
    of: int


@value
class CommitsMade(Value):
    """The newest commits with a session's work, and the places (PATH:FIRST-LAST) of the session's lines in HEAD.

    `count` is the number of all such commits. `notice` says what was not examined.
    """

    count: int
    commits: tuple[MadeCommit, ...]
    lines_today: int
    places: tuple[Masked, ...]
    notice: str = rare("")
