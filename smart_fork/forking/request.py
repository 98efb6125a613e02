"""Requests to fork or branch a session, token budgets, and rules to choose one of the sessions that a search found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from indexer.lazy_compilation import dataclass, late
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.request_fields import Options, said
from smart_fork.display_text import shown
from smart_fork.errors import Usage, advice
from smart_fork.finding.fork_suitability import least_close  # a server that is started need not import the search
from smart_fork.finding.hit import Hit

if TYPE_CHECKING:
    from smart_fork.finding.request import FindRequest

Amount = int | Literal["match"]
_NUMBER = late(r"([0-9]{1,9})(?:\.([0-9]{1,3}))?([kKmM]?)")
_TIMES = {"": 1, "k": 1_000, "m": 1_000_000}
#: The largest budget accepted: more than any model's context window.
MAX_BUDGET_TOKENS = 100_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    """The size of a fork in tokens, or `MATCH` for only the exchanges that answer the intent.

    `keep` and `drop` are numbers of exchanges (a prompt and its answer) that are always or never in the fork.
    """

    #: A budget without a number: keep only the exchanges that answer the intent, and what they need.
    MATCH: ClassVar[Literal["match"]] = "match"

    budget: Amount
    keep: frozenset[int] = frozenset()
    drop: frozenset[int] = frozenset()

    def changed(self) -> bool:
        """Return True if the user named exchanges to keep or to drop."""
        return bool(self.keep or self.drop)

    @classmethod
    def parse(cls, budget: object, keep: str | None = None, drop: str | None = None) -> Self | None:
        """Return a budget from texts: its size, and exchanges to keep or drop (``3,5-7``); `None` without a `budget`.

        Raises:
            Usage: a value is invalid, or exchanges are named without a budget.
        """
        if budget is None:
            if keep is not None or drop is not None:
                raise Usage(
                    "Keeping and dropping exchanges needs a budget",
                    advice("Give a number of tokens as well: --budget 30k.", tool="Give a budget as well: '30k'."),
                )
            return None
        return cls(cls.parse_amount(budget), cls.parse_numbers(keep), cls.parse_numbers(drop))

    @staticmethod
    def parse_amount(given: object) -> Amount:
        """Parse the size of a budget: tokens such as ``30000``, ``30k`` or ``1.5m``, or ``match``.

        Raises:
            Usage: `given` is not a budget.
        """
        if given == Budget.MATCH:
            return Budget.MATCH
        text = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
        found = _NUMBER.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None:
            raise Usage(f"{shown(given)} is not a budget", "Give a number of tokens, such as 30000 or 30k, or match.")
        whole, fraction, unit = found[1], found[2] or "", found[3].lower()
        if fraction and not unit:
            hint = "Give a whole number of tokens, such as 30000 or 30k, or match."
            raise Usage(f"{shown(given)} is not a budget", hint)
        tokens = int(f"{whole}{fraction.ljust(6, '0')}") * _TIMES[unit] // 1_000_000
        if not 0 < tokens <= MAX_BUDGET_TOKENS:
            raise Usage(
                f"A budget is between 1 and {MAX_BUDGET_TOKENS:,} tokens, not {shown(given)}",
                "Give for example 30k, or match for the least.",
            )
        return tokens

    @staticmethod
    def parse_numbers(given: str | None) -> frozenset[int]:
        """Return the exchange numbers in a text such as ``3,5-7``; raise `Usage` for another text."""
        found: set[int] = set()
        for piece in (given or "").split(","):
            low, dash, high = (side.strip() for side in piece.partition("-"))
            if not low and not dash:
                continue
            sides = (low, high if dash else low)
            if not all(side.isascii() and side.isdigit() and len(side) <= 6 for side in sides):
                raise Usage("Exchanges are given by number, such as 3,5-7", "--dry-run shows them.")
            first, last = sorted(map(int, sides))
            if last - first > 100_000:
                raise Usage("Exchanges are given by number, such as 3,5-7", "--dry-run shows them.")
            found.update(range(first, last + 1))
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """A budget as users and models write it: the texts that `Budget.parse` takes."""

    budget: str | None = said(
        help="Keep only relevant exchanges, up to N tokens (30k) or `match`.",
        described="Keep only what answers, up to '30k' tokens. 'match': the least.",
    )
    keep: str | None = said(
        help="Exchanges that a --budget always keeps: 3,5-7.", described="Exchanges to keep within budget: '3,5-7'."
    )
    drop: str | None = said(help="Exchanges that a --budget never keeps.", described="Exchanges to drop.")

    def wanted(self) -> Budget | None:
        return Budget.parse(self.budget, self.keep, self.drop)


#: A function that lets the user choose among hits, and returns the id. May raise `NotFound` or `AnswerPending`.
Ask = Callable[[Sequence[Hit]], str]
#: The most sessions in a merged fork, and the most forks in one call.
MAX_MERGED, MAX_FORKS = 8, 10


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A request to fork or branch (copy) `session`: its id, at least 8 characters of it, or a worker's id.

    With a number `at`, the copy ends after that message; with ``"match"``, after the exchange that answers the `intent`
    (what the user looks for). A `budget` limits the copy to exchanges that answer it. The copy works in `cwd`, by
    default the session's directory. `as_agent` receives the session as text, if it is not the session's own agent.
    """

    session: str = said(default="", key="fork_session_id", described="Fork this session.")
    options: Options = Options()
    at: int | str | None = said(
        int,
        Literal["match"],
        described="Fork after this message number, or 'match': after the answer.",
        help="Fork after this message, or `match`: after the best answer.",
        read=str,
    )
    intent: str | None = said(help="Text for --at match, --budget and --top. Default: the prompt.")
    also: tuple[str, ...] = said(list[str], default=(), help="The same intent in other words. Repeatable, up to 8.")
    budget: Budget | None = None
    cwd: str | None = said(help="Working directory. Default: the session's own.", read=Path)
    as_agent: AgentName | None = said(described="Hand over to this agent.")
    caller_session_id: str | None = None

    @property
    def looked_for(self) -> str:
        """Return the intent (what the user looks for), by default the prompt."""
        return (self.options.prompt if self.intent is None else self.intent) or ""

    @property
    def at_match(self) -> bool:
        """Return True if the copy ends after the exchange that answers the intent (what the user looks for)."""
        return self.at == Budget.MATCH

    @property
    def message(self) -> int | None:
        """Return the number of the message after which the copy ends, if given; raise `Usage` for another text."""
        if isinstance(self.at, str) and not self.at_match:
            raise Usage(
                advice(
                    f"--at {self.at} is not a message number",
                    tool=f"at must be a number or 'match', not {shown(self.at)}",
                ),
                advice(
                    "`smart-fork show ID` prints the numbers; `match` finds one.",
                    tool="Use a message number, such as match.turn_index.",
                ),
            )
        return None if isinstance(self.at, str) else self.at

    def agent_of(self, session: Session) -> AgentName:
        """Return the agent that the fork of `session` starts: `as_agent`, or the session's own."""
        return session.agent if self.as_agent is None else AGENTS.to_start(self.as_agent)


@dataclass(frozen=True, slots=True)
class ForkRequest(SessionRequest):
    """A request to fork `session`. With `merge`, the fork also contains parts of these further sessions.

    `found` is the message that the search has found; it is used if the best answer is unknown. With `or_without`, the
    fork starts even if no worktree can be made. `notes` are the fork's first warnings.
    """

    found: str | None = None
    notes: tuple[str, ...] = ()
    merge: tuple[str, ...] | None = said(list[str], described="Merge the answers of these sessions too.")
    dry_run: bool = said(
        bool,
        default=False,
        described="Start nothing; show each way's tokens.",
        help="Print the command and its cost. Start nothing.",
    )
    or_without: bool = False

    @property
    def sessions(self) -> tuple[str, ...]:
        """Return all sessions that go into the fork."""
        return (self.session, *(self.merge or ()))


@dataclass(frozen=True, slots=True)
class BranchRequest(SessionRequest):
    """A request to copy `session` under a `title` of its own.

    With a `project`, a session of another project is refused. With `start`, a worker with these `options` resumes the
    copy.
    """

    session: str = said(
        default=MISSING, key="session_id", described="The id of a session, or at least 8 characters of it."
    )
    title: str | None = said(described="Title. Default: the parent's.", help="Title. Default: the parent's title.")
    start: bool = said(
        bool, default=False, described="Resume the branch immediately.", help="Resume the copy immediately."
    )
    project: str | None = said(
        key="project_path",
        described="Refuse a session that does not belong to this directory's project.",
        help="Refuse a session of another project than this directory's.",
        flags=("--project", "-p"),
        read=Path,
    )


@dataclass(frozen=True, slots=True)
class SessionChoice:
    """Rules for choosing one of the found sessions to fork. Without a rule or a named session, none is forked.

    `auto_fork` forks the best one if it scores at least the search's `min_score`; `ask` lets the user choose if several
    score about equally. `fork_index` forks the result with this index. With `or_all`, all agents' sessions are searched
    if none of the requested agent's fits. `call` has the arguments of the tool call, from which the answer makes
    similar calls.
    """

    auto_fork: bool = said(bool, default=False, described="Fork your agent's best, if it scores min_score (0.5).")
    fork_index: int | None = said(int, described="Fork this result, from 0.")
    ask: Ask | None = None
    or_all: bool = False
    call: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BestSessions:
    """The number of found sessions to fork (`top`), and the minimum score that each of them needs."""

    top: int | None = said(int, help="Fork the N best sessions of this project.")
    min_score: float | None = said(float, help="Lowest score for --top. Default: 0.5.")

    def search_request(self, like: ForkRequest) -> FindRequest:
        """Return the search request for sessions to fork as `like` says: more than `top`, as some cannot be forked."""
        from smart_fork.finding.request import FindRequest  # few commands search

        FindRequest.check_score(self.min_score)
        return FindRequest(
            like.looked_for, agent_type="all", limit=3 * MAX_FORKS, include_snippets=False, works_in=like.cwd,
            as_agent=like.as_agent, also=like.also,
        )  # fmt: skip


#: The request to fork nothing.
NO_CHOICE, NO_FORK = SessionChoice(), ForkRequest()


def check(request: ForkRequest) -> None:
    """Refuse (`Usage`) a fork request with invalid values, before any session is read."""
    if (message := request.message) is not None and message < 0:
        raise Usage(f"at must be non-negative, not {message}", "Use a message number, such as match.turn_index.")
    if request.merge is not None:
        _check_merge(request, 1 + len(request.merge))
    if request.as_agent is not None:
        AGENTS.to_start(request.as_agent)


def _check_merge(request: ForkRequest, number: int) -> None:
    both = "merge needs a budget and goes without at"
    all_of_them = advice(
        "Give a budget for all of them: --budget 40k.", tool="Give a budget for all of them: budget '40k'."
    )
    if request.budget is None:
        raise Usage(advice("--merge needs a budget", tool=both), all_of_them)
    if request.at is not None:
        raise Usage(
            advice("--merge goes with neither --at nor --top", tool=both),
            advice("Name the sessions and an intent.", tool=all_of_them),
        )
    if not 2 <= number <= MAX_MERGED:
        raise Usage(
            f"Between 2 and {MAX_MERGED} sessions can be merged, not {number}",
            advice("Name several, or fork the one without --merge.", tool="Give several, or fork the one alone."),
        )
    if request.budget.changed():
        raise Usage("keep and drop work with one session only", "Fork it alone, or merge without them.")


# Which of several sessions that are about as likely is to be forked: whoever can be asked is asked.


class AnswerPending(Exception):
    """Raised instead of forking if the user was asked to choose, and the answer comes in a later request."""


def about_as_likely(hits: Sequence[Hit]) -> list[Hit]:
    """Return the search results whose scores are close to the best one: the user may mean each of them."""
    least = least_close(max((hit.score for hit in hits), default=0.0))
    return [hit for hit in hits if hit.score >= least]
