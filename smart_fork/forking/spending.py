"""A fork within a budget: what of the session goes into it, by what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from indexer.shapes import dataclass
from indexer.transcripts.model import Session
from smart_fork.budget.wanted import MATCH, Wanted
from smart_fork.budget.within import Selected, selected
from smart_fork.copies.session_copy import Point, last_branch_point
from smart_fork.errors import IndexUnavailable, Usage, advice
from smart_fork.forking.floor import NAMED_FLOOR, fits, in_words, none_answers
from smart_fork.forking.spec import WorkerSpec
from smart_fork.retrieval.fork_point import ExchangeEvidence

if TYPE_CHECKING:
    from smart_fork.retrieval.library import Library


@dataclass(frozen=True, slots=True)
class Spending:
    """A budget, what is to be known for it (`also` in other words), and what answers that.

    Without an intent or a library what was said last is worth most.
    `known` is the evidence for the session that is forked, where that has been gathered.
    """

    wanted: Wanted
    intent: str = ""
    also: Sequence[str] = ()
    library: Library | None = field(default=None, compare=False)
    known: ExchangeEvidence | None = field(default=None, compare=False)

    def evidence(self, session: Session) -> ExchangeEvidence | None:
        """What speaks for each exchange of a session; `None` where nothing is asked, or nobody can be.

        Raises:
            Usage: `also` is not what it may be.
        """
        intent = self.intent.strip()
        if self.known is not None or not intent or self.library is None:
            return self.known

        try:
            return self.library.evidence(session, intent, self.also)
        except IndexUnavailable as error:
            return ExchangeEvidence(why_not=error.message)

    def settle(self) -> None:
        """Nothing more is chosen by it: what makes its vectors ends, before this process may become an agent."""
        if self.library is not None:
            self.library.settle()


def within(spec: WorkerSpec, session: Session, spending: Spending) -> tuple[WorkerSpec, Selected]:
    """A fork of `session` as it fits into a budget, and what of it is kept.

    Raises:
        Usage: see `chosen`.
        ForkRefused: nothing is left out of sessions of that agent, or it has answered nothing.
    """
    end = spec.point.index if spec.point else last_branch_point(session)
    found = chosen(session, end, spending)
    if found.excerpt is None:
        return spec, found
    last = max(found.excerpt.kept)
    point = Point(last, session.turns[last].id)
    return replace(spec, point=point, excerpt=found.excerpt), found


def chosen(session: Session, end: int, spending: Spending) -> Selected:
    """What of a session up to turn `end` is kept.

    Raises:
        Usage: the budget is `match`, and it is not said what is to be answered; or see `selected`.
        NotFound: the budget is `match`, and nothing in the session answers.
        ForkRefused: nothing is left out of sessions of that agent.
    """
    if spending.wanted.budget == MATCH and not spending.intent.strip():
        raise Usage(
            "A budget of match needs an intent",
            advice('Give an intent: --intent "…", or a prompt.', tool="Give an intent: prompt."),
        )
    evidence = spending.evidence(session)
    if evidence is not None and evidence.score is not None and not fits(evidence):
        if spending.wanted.budget == MATCH and not spending.wanted.changed():
            raise none_answers(session.session_id, evidence.score)
        why = f"nothing fits: the best score is {in_words(evidence.score)}, below {NAMED_FLOOR:.2f}"
        evidence = ExchangeEvidence(why_not=why)
    return selected(session, end, spending.wanted, evidence)
