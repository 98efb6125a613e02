"""What is asked of a fork, and which of the sessions that were found is to be forked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents.options import PLACES, AnyPlace, Options, said
from smart_fork.agents.selection import named
from smart_fork.budget.wanted import MATCH
from smart_fork.errors import Usage, advice
from smart_fork.text.snippets import shown

if TYPE_CHECKING:
    from smart_fork.budget.wanted import Wanted
    from smart_fork.forking.which import Ask


#: So many sessions go into one.
MAX_MERGED = 8


class Leaving:
    """Where a fork or a copy of a session ends, by what was asked for `at`."""

    __slots__ = ()
    at: int | str | None

    @property
    def at_match(self) -> bool:
        """`True` if that is the end of the exchange that answers."""
        return self.at == MATCH

    @property
    def message(self) -> int | None:
        """The number of the message, if one was given.

        Raises:
            Usage: it is none.
        """
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


@dataclass(frozen=True, slots=True)
class ForkRequest(Leaving):
    """A fork of `session`, a reference as `sessions.locate` takes it; with `merge` of these as well.

    It leaves after message number `at`, or at the end of the exchange that answers with ``"match"``: if that is not
    known, of the one with the message `found` that a search has found. It works in `cwd`, else where the session did.
    With a `budget` it has only what answers the `intent`, which is the prompt unless given. With `as_agent` it is
    handed over to that agent. A `dry_run` starts nothing, and compares the ways to fork the session. With `or_without`
    it starts also where no worktree can be made.
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
    found: str | None = None
    budget: Wanted | None = None
    merge: tuple[str, ...] | None = said(list[str], described="Merge the answers of these sessions too.")
    cwd: str | None = said(help="Working directory. Default: the session's own.", read=Path)
    as_agent: AgentName | None = said(described="Hand over to this agent.")
    dry_run: bool = said(
        bool,
        default=False,
        described="Start nothing. Show the tokens of each way to fork.",
        help="Print the command and its cost. Start nothing.",
    )
    caller_session_id: str | None = None
    or_without: bool = False

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions that go into it."""
        return (self.session, *(self.merge or ()))

    @property
    def looked_for(self) -> str:
        """The intent; by default the prompt."""
        return (self.options.prompt if self.intent is None else self.intent) or ""


@dataclass(frozen=True, slots=True)
class BranchRequest(Leaving):
    """A copy of `session` under a `title` of its own, up to where a fork of it would leave `at`.

    It works in `cwd`, else where the session did; one that does not belong to `project` is refused. With `start` it is
    resumed immediately, in `place` and with the `prompt`. `budget`, `intent` and `as_agent` are as in `ForkRequest`;
    what is handed over is masked unless `unmasked`.
    """

    session: str = said(
        default=MISSING, key="session_id", described="The id of a session, or at least 8 characters of it."
    )
    prompt: str | None = said(described="With start: the prompt.")
    at: int | str | None = said(
        int,
        described="Branch after this message number of read_session. Default: the end.",
        help="Copy up to this message, or `match`: up to the best answer.",
        read=str,
    )
    intent: str | None = said(
        described="With budget: the intent. Default: prompt.", help="Text for --at match and --budget."
    )
    also: tuple[str, ...] = said(list[str], default=(), help="The same intent in other words. Repeatable, up to 8.")
    title: str | None = said(described="Title. Default: the parent's.", help="Title. Default: the parent's title.")
    start: bool = said(
        bool, default=False, described="Resume the branch immediately.", help="Resume the copy immediately."
    )
    place: str | None = said(
        key="run_in",
        described="With start: where it runs.",
        help="Place to run, with --start.",
        flags=("--in",),
        choices=PLACES,
        read=AnyPlace,
    )
    cwd: str | None = said(
        described="Working directory. Default: the session's own.",
        help="Working directory. Default: the session's own.",
        read=Path,
    )
    project: str | None = said(
        key="project_path",
        described="Refuse a session that does not belong to this directory's project.",
        help="Refuse a session of another project than this directory's.",
        flags=("--project", "-p"),
        read=Path,
    )
    budget: Wanted | None = None
    as_agent: AgentName | None = said(described="Hand over to this agent.")
    unmasked: bool = said(
        bool,
        default=False,
        described="Hand over secrets if the user wants it.",
        help="Hand over secrets too. Default: masked.",
    )
    caller_session_id: str | None = None

    @property
    def looked_for(self) -> str:
        """The intent; by default the prompt."""
        return self.intent or self.prompt or ""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of the sessions found is forked: none, unless one of the fields or the request of the fork says so.

    With `auto_fork` it is the best one if it fits: it scores the search's `min_score`, else `FLOOR`. If several fit
    about as well, it is the one that is chosen by whom `ask` asks. With `or_all` all agents' sessions are searched if
    those of the request's agent do not fit; `auto_fork` then forks only what starts that agent. `call` has the
    arguments of the tool that asks, for the calls that it is told to make.
    """

    auto_fork: bool = said(bool, default=False, described="Fork your agent's best, if it scores min_score (0.3).")
    fork_index: int | None = said(int, described="Fork this result, from 0.")
    ask: Ask | None = None
    or_all: bool = False
    call: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Best:
    """How many of the sessions that a search finds are forked, and what they must score."""

    top: int | None = said(int, help="Fork the N best sessions of this project.")
    min_score: float | None = said(float, help="Lowest score for --top. Default: 0.3.")


#: Nothing is forked.
NO_CHOICE, NO_FORK = Choice(), ForkRequest()


def check(request: ForkRequest) -> None:
    """Refuse what no session can be forked with. Nothing is read.

    Raises:
        Usage: something in the request is not valid.
    """
    if (message := request.message) is not None and message < 0:
        raise Usage(f"at must be non-negative, not {message}", "Use a message number, such as match.turn_index.")
    if request.merge is not None:
        _check_merge(request, 1 + len(request.merge))
    if request.as_agent is not None:
        named(request.as_agent)


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
