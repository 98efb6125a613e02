"""One session that was found, as the command line, MCP and scripts get it, and what people read of it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from indexer.masking import NOTHING, Masked
from indexer.outcome import Outcome
from indexer.transcripts.model import AgentName, Resumed
from indexer.values import Value, rare, record, spread, value
from smart_fork.agents import AGENTS, checkpoints

_OUTCOMES: Mapping[str, str] = {
    Outcome.COMMITTED: "committed",
    Outcome.TESTS_PASSED: "tests passed",
    Outcome.FAILED: "failed",
    Outcome.ABANDONED: "abandoned",
    Outcome.UNKNOWN: "outcome not known",
}
#: What a fork at the answer has to save, in tokens and as a share of the session, to be the one that is suggested.
SAVED_TOKENS, SAVED_SHARE = 10_000, 0.3
#: A fork that loads more than this is suggested within this budget, which keeps what answers in nearly every session.
MUCH_TOKENS, BUDGET, BUDGET_TOKENS = 100_000, "30k", 30_000


@value
class Match(Value):
    """The matching place in a session, the tokens that a fork there loads, and the evidence: words and similarity.

    `lost` is the reason why the agent's own fork of the whole session does not know it: "compaction" or "gap".
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
    """A session's share of the code asked about: so many `lines`, `share` of them.

    `exchange` wrote most of them, after it was `asked` that; `commits` are those that the lines are from.
    """

    share: float
    lines: int
    of: int
    exchange: int
    asked: str
    commits: tuple[str, ...]


@value
class Lineage(Value):
    """The session's family: what it was forked from, its forks, and other members."""

    parent: str | None = None
    forks: tuple[str, ...] = ()
    family_size: int = 1
    others: tuple[str, ...] = ()


@value
class ToldBy(Value):
    """Evidence that one phrasing found in a session: its share of the points, its words in the passage."""

    text: str
    points: Mapping[str, float]
    words: tuple[str, ...]


@value
class CacheUse(Value):
    """Lifetime of the model's cache, from the log, and the time of its last use."""

    seconds: int
    last_request: str


@value
class Explanation(Value):
    """Explains a score: ``1 / (1 + exp(against - sum of the points))``. `reranked` is the final score.

    `phrasings` says what each phrasing of the question has found, where there are several; `cache` why the session is
    still cached, or not.
    """

    points: Mapping[str, float]
    against: float
    score: float
    reranked: float | None = rare()
    phrasings: tuple[ToldBy, ...] = rare(())
    cache: CacheUse | None = rare()


@value
class FilesChanged(Value):
    """Of the files that the session edited in the repository, how many have changed in git since."""

    files: int
    changed: int
    share: float


@value
class Price(Value):
    """Tokens that a fork loads, and the time until which the model's cache has them, if known.

    Of each number, `instructions` are the agent's own instructions and tools, as far as they are known.
    """

    tokens: int
    tokens_at_match: int | None = None
    cached: bool = rare(default=False)
    cached_until: str = rare("")
    instructions: int = rare(0)


@value
class Origin(Value):
    """Origin of a teammate's session. `also_local` is a local session with the same beginning."""

    server: str
    owner: str
    session_id: str
    also_local: str | None = None


@record
class Hit(Value):
    """One session that was found. `resumed` is what its agent's own program loads of it, where that is not all.

    `fork_note` says why `fork_command` forks less than the whole session, where that would not know the match.
    `began_in` is where it was begun, if it only worked in the project that is asked about.
    `headline` is the title; where that does not say what was done, the subject of the session's last commit or the
    prompt that matched. `edited_files` are the three that it edited most often, from the top of the repository.
    """

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
    drift: FilesChanged | None = None
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
        """JSON values; who said the snippet only where there is one."""
        told = super().as_json()
        if self.snippet is None:
            del told["said_by"]
        return told

    @property
    def suggested_at(self) -> int | None:
        """The message at which a fork is so much cheaper that it is worth doing without what came later, if any.

        Of a session that wrote the code that was asked about it is the end of the exchange that did. Of one whose fork
        would not know the match it is the end of that.
        """
        at, there = self.match.ends_at_message, self.match.token_estimate
        if self.wrote is not None or self.match.lost:
            return at
        return None if at is None or there is None or not _saves(there, self.token_estimate) else at

    @property
    def suggested_budget(self) -> str | None:
        """The budget for a fork that loads very much otherwise, also at its answer: what ends there is always kept."""
        loads = self.token_estimate if self.suggested_at is None else self.match.token_estimate or 0
        less = self.within_budget
        much = less < loads if loads > MUCH_TOKENS else bool(self.match.lost) and _saves(less, loads)
        return BUDGET if much and AGENTS[self.agent_type].abilities()["budgeted"] else None

    @property
    def within_budget(self) -> int:
        """About how many tokens a fork within the suggested budget loads, with the agent's instructions and tools."""
        return BUDGET_TOKENS + self.price.instructions

    def suggested_fork(self, name: str = "") -> str:
        """The command of ours for the fork that is suggested; `name` stands for the session's id."""
        other = None if AGENTS[self.agent_type].has("starter") else AGENTS.first()
        if checkpoints.is_history(self.jsonl_path or ""):
            other = other or self.agent_type
        said = (("--at", self.suggested_at), ("--budget", self.suggested_budget), ("--as", other))
        options = [word for option, value in said if value is not None for word in (option, str(value))]
        return shlex.join(("smart-fork", "fork", name or self.session_id, *options))

    @property
    def why_less(self) -> str:
        """Why a fork of the whole session would not know the match; empty where it would."""
        if self.match.lost == "gap" and self.resumed:
            return f"Its agent alone {self.resumed.sentence}"
        return "The session was compacted after it: a fork of all of it would not know this" if self.match.lost else ""

    @property
    def passage_place(self) -> str:
        """Place to open the passage, such as ``/…/id.md:12-31``; empty if unknown."""
        if not self.lines:
            return ""
        first, last = self.lines
        return f"{self.source_path}:{first}" + (f"-{last}" if last > first else "")

    @property
    def became_of(self) -> list[str]:
        """Describe the outcome of its work and, if known, how much has changed since."""
        said, drift = [_OUTCOMES[self.outcome]], self.drift
        if drift:
            files = f"{drift.files} file{'s' if drift.files > 1 else ''}"
            changed = f"{drift.changed} of its {files} changed since ({drift.share:.0%})".replace("%", " %")
            said.append(changed if drift.changed else f"none of its {files} changed since")
        return said


def _saves(tokens: int, whole: int) -> bool:
    return whole - tokens > max(SAVED_TOKENS, SAVED_SHARE * whole)


def outcome_in_words(outcome: str) -> str:
    """Describe the outcome of a session's work."""
    return _OUTCOMES[Outcome(outcome)]


def score_in_words(score: float) -> str:
    """A score as people read it, never rounded up to what it does not reach."""
    return f"{math.floor(score * 100 + 1e-9) / 100:.2f}"


# A conversation to read, as the command line and MCP get it: values.


@value
class Message(Value):
    """One message of a conversation."""

    number: int
    message_id: str
    role: str
    timestamp: str
    text: Masked


@value
class MadeCommit(Value):
    """A commit that came of a session: so many `lines` of the lines that it adds are the session's.

    Without lines its message names the session.
    """

    commit: str
    date: str
    subject: Masked
    lines: int
    of: int


@value
class CommitsMade(Value):
    """The newest of the commits that came of a session, and its lines that are in HEAD now, in places PATH:FIRST-LAST.

    `notice` says what was not looked at.
    """

    count: int
    commits: tuple[MadeCommit, ...]
    lines_today: int
    places: tuple[Masked, ...]
    notice: str = rare("")


@value
class Verdict(Value):
    """A verdict on a session's work: "merged", "kept" or "dropped", from a person or from git (`said_by`).

    `said` is a sentence about it, with the reason that the person gave; `tried` is when the session worked.
    """

    session_id: str
    outcome: str
    said: Masked
    tried: str
    said_by: str
    reason: Masked = rare(NOTHING)


@value
class SessionNotes(Value):
    """Notes on a session, stored beside its log: verdicts on it and on its `forks`, and a person's marks."""

    verdict: Verdict | None = rare()
    forks: tuple[Verdict, ...] = rare(())
    tags: tuple[str, ...] = rare(())
    pinned: bool = rare(default=False)
    archived: bool = rare(default=False)

    @property
    def sentences(self) -> list[str]:
        """Return the verdicts on it and its forks as sentences."""
        return [one.said for one in (*([self.verdict] if self.verdict else []), *self.forks)]

    @property
    def marks(self) -> list[str]:
        """Return its marks in words."""
        flags = [word for word, on in (("pinned", self.pinned), ("archived", self.archived)) if on]
        return [*flags, *(f"#{one}" for one in self.tags)]


@value
class ResumedPart(Value):
    """The messages that an agent's own program loads of a session, where these are not all: those from `start` on.

    Of a session that went on in two folders they are its own end, before which it loads what both ends have.
    """

    start: int
    reason: str
    messages: int
    of: int

    @property
    def sentence(self) -> str:
        """Describe for a person which part is loaded, and why."""
        if self.reason == "elsewhere":
            return (
                f"loads one of two ends: the session went on in two folders. Its own end begins at message {self.start}"
            )
        why = "a record was never written" if self.reason == "gap" else "the session was compacted"
        return f"loads {self.messages} of {self.of} messages: {why}"


def resumed_part(resumed: Resumed, forgotten: int, turns: int) -> ResumedPart | None:
    """Return what is loaded of so many turns, of which a compaction has `forgotten` some; `None` where that is all."""
    loaded = turns - (forgotten if resumed.reason == "compaction" else resumed.start)
    return ResumedPart(resumed.start, resumed.reason, loaded, turns) if resumed.reason else None


@record
class Conversation(Value):
    """The answer of ``read_session``. `next_at` is where to read on, when the messages did not all fit.

    `resumed` is what the agent's own program loads, where that is not all. `models` are those that have answered,
    `owner` is whose it is where the team shares it, `resolved` as what it was found. `commits` are told with its first
    message. `left_out` says what of a very long session was not read. `headline` and `edited_files` are as in `Hit`.
    """

    session_id: str
    agent_type: AgentName
    title: str
    headline: str = rare("")
    edited_files: tuple[str, ...] = rare(())
    working_directory: str
    project_inferred_from: str = rare("")
    last_activity: str
    models: tuple[Masked, ...] = ()
    notice: str = rare("")
    owner: str = rare("")
    resolved: str = rare("")
    forked_from: str = rare("")
    commits: CommitsMade | None = rare()
    noted: SessionNotes | None = rare()
    resumed: ResumedPart | None = rare()
    messages: tuple[Message, ...]
    left_out: str = rare("")
    read_on: Mapping[str, int | None] = spread(next_at=int | None)


@record
class Exported(Value):
    """The remains of a session whose log is gone."""

    session_id: str
    agent_type: AgentName
    notice: str = rare("")
    noted: SessionNotes | None = rare()
    markdown: Masked
