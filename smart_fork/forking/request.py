"""What is asked of a fork, and which of the sessions that were found is to be forked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents.options import Options, said

if TYPE_CHECKING:
    from smart_fork.budget.wanted import Wanted
    from smart_fork.forking.spending import Spending
    from smart_fork.forking.which import Ask


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A fork of `session`, which is a reference as `sessions.locate` takes it; with `merge` of these as well.

    It leaves after message number `at`; or where the exchange ends that the message with the id `through` is in; or at
    the session's end. It works in `cwd`, else where the session did. With a `budget` it has only what answers. With
    `as_agent` the session is handed over to that agent. A `dry_run` starts nothing. It compares the ways to fork the
    session, for which `preview` says what they are to answer where no budget does.
    """

    session: str
    options: Options = Options()
    at: int | None = None
    through: str | None = None
    merge: tuple[str, ...] = ()
    cwd: str | None = None
    budget: Spending | None = None
    as_agent: AgentName | None = None
    dry_run: bool = False
    preview: Spending | None = None
    caller_session_id: str | None = None


@dataclass(frozen=True, slots=True)
class ForkChoice:
    """Which of the sessions found is forked, and how: none, unless one of the first three fields says so.

    With `auto_fork` it is the best one if it fits: it scores the request's `min_score`, else `FLOOR`. Where several fit
    about as well, it is the one that is chosen by whom `ask` asks. With `at` ``"match"`` the fork leaves where the
    passage ends that was found. With `or_all` all agents' sessions are searched where those of the request's agent do
    not fit; `auto_fork` then forks only what starts that agent. `call` has the arguments of the tool that asks, for the
    calls that it is told to make. The rest is as in `ForkRequest`.
    """

    auto_fork: bool = said(
        bool,
        default=False,
        described="Fork your agent's best, if it scores min_score (0.3).",
    )
    fork_index: int | None = said(int, described="Fork this result, from 0.")
    fork_session_id: str | None = said(described="Fork this session.")
    options: Options = Options()
    at: int | str | None = said(
        int,
        Literal["match"],
        described="Fork after this message number, or 'match': after the answer.",
    )
    budget: Wanted | None = None
    merge: tuple[str, ...] = said(list[str], default=(), described="Merge the answers of these sessions too.")
    as_agent: AgentName | None = said(described="Hand over to this agent.")
    dry_run: bool = said(bool, default=False, described="Start nothing. Show the tokens of each way to fork.")
    ask: Ask | None = None
    or_all: bool = False
    call: Mapping[str, object] = field(default_factory=dict)
