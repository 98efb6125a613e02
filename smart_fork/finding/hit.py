"""A search result (`Hit`): a session that answers a question, with its cost, its lineage and the evidence."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from indexer.json_values import Value, rare, record, value
from indexer.session_work import Outcome
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.finding.session_notes import SessionNotes

_OUTCOMES: Mapping[str, str] = {
    Outcome.COMMITTED: "committed",
    Outcome.TESTS_PASSED: "tests passed",
    Outcome.FAILED: "failed",
    Outcome.ABANDONED: "abandoned",
    Outcome.UNKNOWN: "outcome not known",
}
#: The tokens, and the share of the session, that a fork at the answer must save to be suggested.
SAVED_TOKENS, SAVED_SHARE = 10_000, 0.3


@value
class Match(Value):
    """The place in a session that matches a question, the tokens that a fork there loads, and the matching words.

    `similarity` is its cosine to the question. `lost` says why the agent's own fork of the whole session lacks the
    place: "compaction", or "gap" (a record is missing).
    """

    turn_index: int | None = None
    message_id: str | None = None
    exchange: int | None = None
    ends_at_message: int | None = None
    token_estimate: int | None = None
    role: str | None = None
    words: tuple[str, ...] = ()
    similarity: float | None = None
    lost: str = rare("")


@value
class WroteLines(Value):
    """A session's share of the code in a question: of the code's `of` lines, it wrote `lines`.

    Most were written in `exchange` (a prompt with its answer), whose prompt is `asked`. `commits` contain the lines.
    """

    share: float
    lines: int
    of: int
    exchange: int
    asked: str
    commits: tuple[str, ...]


@value
class Lineage(Value):
    """The relatives of a session: its parent, its forks, and others of its family (an original and all its forks)."""

    parent: str | None = None
    forks: tuple[str, ...] = ()
    family_size: int = 1
    others: tuple[str, ...] = ()


@value
class ToldBy(Value):
    """The part of a score that one phrasing of a question gave: its points, and its words in the passage."""

    text: str
    points: Mapping[str, float]
    words: tuple[str, ...]


@value
class CacheUse(Value):
    """The model's cache of a session: its lifetime in seconds, from the log, and the time of the last request."""

    seconds: int
    last_request: str


@value
class Explanation(Value):
    """The parts of a score, which is ``1 / (1 + exp(against - sum of the points))``. `reranked` is the final score.

    `phrasings` has the evidence of each phrasing, if the question has several.
    """

    points: Mapping[str, float]
    against: float
    score: float
    reranked: float | None = rare()
    phrasings: tuple[ToldBy, ...] = rare(())
    cache: CacheUse | None = rare()


@value
class Price(Value):
    """The tokens that a fork of a session loads, and the time until which the model's cache has them, if known.

    `tokens_at_match` is for a fork at the matching place. Each number includes `instructions`: the tokens of the
    agent's own instructions and tools, if known.
    """

    tokens: int
    tokens_at_match: int | None = None
    cached: bool = rare(default=False)
    cached_until: str = rare("")
    instructions: int = rare(0)


@value
class Origin(Value):
    """The server, owner and id of a session that a teammate shares. `also_local` is a local session of its family."""

    server: str
    owner: str
    session_id: str
    also_local: str | None = None


@record
class Hit(Value):
    """A session in an answer's results. `resumed` is the part that the session's agent loads, if it does not load all.

    `fork_note` says why `fork_command` forks only a part. `began_in` is set if the session began elsewhere and only
    worked in the asked project. `headline` is the title, or the subject of the last commit or the matching prompt if
    the title does not say what was done. `edited_files` are the three most edited files, relative to the repository.
    """

    #: A fork that loads more tokens is suggested with this budget, which keeps the answer in nearly every session.
    MUCH_TOKENS, BUDGET, BUDGET_TOKENS = 100_000, "30k", 30_000

    rank: int
    score: float
    session_id: str
    agent_type: AgentName
    title: str
    headline: str = ""
    edited_files: tuple[str, ...] = rare(())
    working_directory: str
    project_inferred_from: str = rare("")
    began_in: str = rare("")
    repo_root: str | None = None
    git_branch: str | None = None
    date: str = ""
    last_activity: str = ""
    snippet: str | None = rare()
    said_by: str | None = None
    match: Match = Match()
    turns: int = 0
    token_estimate: int = 0
    outcome: str = "unknown"
    drift: Drift | None = None
    price: Price = Price(0)
    lineage: Lineage = Lineage()
    source_path: str = ""
    lines: tuple[int, int] | None = None
    jsonl_path: str | None = None
    can_fork: bool = True
    warning: str = rare("")
    fork_command: str = ""
    fork_note: str = rare("")
    resumed: ResumedPart | None = rare()
    origin: Origin | None = rare()
    also_remote: Origin | None = rare()
    author: str = rare("")
    wrote: WroteLines | None = rare()
    noted: SessionNotes | None = rare()
    explain: Explanation | None = rare()

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values, without the speaker if there is no snippet."""
        told = super().as_json()
        if self.snippet is None:
            del told["said_by"]
        return told

    @property
    def suggested_at(self) -> int | None:
        """Return the message to fork after, if that saves many tokens of the whole session; otherwise `None`.

        If the session wrote the asked code, or its agent's own fork lacks the match, return the match's last message.
        """
        at, there = self.match.ends_at_message, self.match.token_estimate
        if self.wrote is not None or self.match.lost:
            return at
        return None if at is None or there is None or not _saves(there, self.token_estimate) else at

    @property
    def suggested_budget(self) -> str | None:
        """Return the token budget to suggest for a fork that would load very many tokens; `None` for other forks."""
        loads = self.token_estimate if self.suggested_at is None else self.match.token_estimate or 0
        less = self.within_budget
        much = less < loads if loads > self.MUCH_TOKENS else bool(self.match.lost) and _saves(less, loads)
        return self.BUDGET if much and AGENTS[self.agent_type].abilities()["budgeted"] else None

    @property
    def within_budget(self) -> int:
        """Return about how many tokens a fork within the suggested budget loads, instructions included."""
        return self.BUDGET_TOKENS + self.price.instructions

    def suggested_fork(self, name: str = "") -> str:
        """Return the shell command of the fork that a result suggests. `name` replaces the session's id."""
        other = None if AGENTS[self.agent_type].has("starter") else AGENTS.first()
        if repository_sessions.is_history(self.jsonl_path or ""):
            other = other or self.agent_type
        said = (("--at", self.suggested_at), ("--budget", self.suggested_budget), ("--as", other))
        options = [word for option, value in said if value is not None for word in (option, str(value))]
        return shlex.join(("smart-fork", "fork", name or self.session_id, *options))

    @property
    def why_less(self) -> str:
        """Return why a fork of the whole session would not contain the match; empty if it would."""
        if self.match.lost == "gap" and self.resumed:
            return f"Its agent alone {self.resumed.sentence}"
        return "The session was compacted after it: a fork of all of it would not know this" if self.match.lost else ""

    @property
    def passage_place(self) -> str:
        """Return the file and lines of the passage in the Markdown export, as ``/…/id.md:12-31``; empty if unknown."""
        if not self.lines:
            return ""
        first, last = self.lines
        return f"{self.source_path}:{first}" + (f"-{last}" if last > first else "")

    @property
    def became_of(self) -> list[str]:
        """Return phrases about the outcome of the session's work, and about later changes of its files."""
        said, drift = [_OUTCOMES[self.outcome]], self.drift
        if drift:
            files = f"{drift.files} file{'s' if drift.files > 1 else ''}"
            changed = f"{drift.changed} of its {files} changed since ({drift.share:.0%})".replace("%", " %")
            said.append(changed if drift.changed else f"none of its {files} changed since")
        return said


def _saves(tokens: int, whole: int) -> bool:
    return whole - tokens > max(SAVED_TOKENS, SAVED_SHARE * whole)


def outcome_in_words(outcome: str) -> str:
    """Return the words for an outcome of a session's work, such as "tests passed"."""
    return _OUTCOMES[Outcome(outcome)]


# The values of a conversation to read.


@value
class ResumedPart(Value):
    """The part of a session that its agent loads on a resume, if not all: the messages from `start` on.

    A session that was continued in two folders has two ends. Then `start` is the first message of this end, and the
    agent also loads the messages before the ends.
    """

    start: int
    reason: str
    messages: int
    of: int

    @property
    def sentence(self) -> str:
        """Return a phrase for a person that says which part is loaded, and why."""
        if self.reason == "elsewhere":
            return (
                f"loads one of two ends: the session went on in two folders. Its own end begins at message {self.start}"
            )
        why = "a record was never written" if self.reason == "gap" else "the session was compacted"
        return f"loads {self.messages} of {self.of} messages: {why}"


@value
class Drift(Value):
    """The number of files that a session edited in the repository, how many have changed since, and their share."""

    files: int
    changed: int
    share: float
