"""Recommends forks of what a search has found: which results fit, and where a fork of one leaves."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from indexer.errors import joined
from indexer.transcripts.model import AgentName
from smart_fork.agents.programs import find_program
from smart_fork.errors import IndexUnavailable, NotFound, SmartForkError, advice
from smart_fork.finding.answer import Answer, Unsearched
from smart_fork.finding.hit import Hit
from smart_fork.finding.ranking import FITS, ExchangeEvidence
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.wanted import Wanted, amount

#: Below this chance nothing is forked, unless `min_score` says otherwise.
FLOOR = FITS
#: The same for what answers in a session that was named: the name speaks for it already. Words that have nothing to do
#: with a session score below 0.01.
NAMED_FLOOR = 0.05


def fitting(answer: Answer, most: int, min_score: float | None) -> tuple[tuple[Hit, ...], int]:
    """Of the best `most` results of a search that can be forked, those that fit; and how many are below the floor.

    Raises:
        IndexUnavailable: nothing could be searched.
        NotFound: nothing that can be forked was found, or nothing that fits.
    """
    if isinstance(answer, Unsearched):
        raise IndexUnavailable(answer.message, answer.next_steps[0])
    results = answer.results
    floor = FLOOR if min_score is None else min_score
    able = [hit for hit in results if hit.can_fork]
    # Of about equally likely ones the better to fork stands first, and may be just below the floor.
    fit = tuple(hit for hit in able if hit.score >= floor)[:most]
    if not results and min_score:
        raise NotFound(f"Nothing was forked: no session scores {min_score:g} or more", "min_score 0 sets no limit.")
    if not able:
        raise none_can_be_forked(results)
    if not fit:
        raise _none_fits(max(able, key=attrgetter("score")), results, floor, answer.unread_notice)
    return fit, len(able[:most]) - len(fit)


def recommended(hit: Hit, asked: ForkRequest, min_score: float | None = None) -> ForkRequest:
    """Return a fork of a result as it was `asked`. If it would not know the match, and nothing says how much it has of
    the session, it leaves at the match, within a budget if that loads very much.

    A match that cannot be told from the session is the result's passage, if the result fits.
    """
    floor = FLOOR if min_score is None else min_score
    asked = replace(asked, found=hit.match.message_id if hit.score >= floor else None)
    if not hit.match.lost or asked.at is not None or asked.budget or asked.merge or asked.as_agent:
        return asked
    budget = hit.suggested_budget
    wanted = Wanted(amount(budget)) if budget else None
    return replace(asked, at=hit.suggested_at, budget=wanted, notes=(hit.fork_note,))


def in_words(score: float) -> str:
    """A score as people read it, never rounded up to what it does not reach."""
    return f"{math.floor(score * 100 + 1e-9) / 100:.2f}"


def fits(evidence: ExchangeEvidence) -> bool:
    """Whether a session answers, as far as that is known."""
    return evidence.score is None or evidence.score >= NAMED_FLOOR


def none_answers(session_id: str, score: float) -> NotFound:
    """The error where nothing in a session answers an intent."""
    return NotFound(
        f"No passage of {session_id} answers that: its score is {in_words(score)}, below {NAMED_FLOOR:.2f}",
        advice(
            'Give other words: --intent "…", --also "…". Or fork all of it without `match`, or use a number from '
            "`smart-fork show`.",
            tool="Give other phrasings (also). Or fork all of it without 'match', or use a number from read_session.",
        ),
    )


def none_can_be_forked(results: Sequence[Hit]) -> NotFound:
    """What is said where no result can be forked at all: other words do not help where a program is missing."""
    reason = f"The reason: {results[0].warning if results else 'nothing was found'}"
    if results and (install := _missing(results[0].agent_type)):
        return NotFound("No forkable sessions found", joined(reason, install))
    widen = advice(
        "Add other phrasings (--also). `smart-fork find` shows each session and its obstacle.",
        tool="Add other phrasings (also), set agent_type 'all', or drop min_score.",
    )
    return NotFound("No forkable sessions found", joined(reason, widen))


def _missing(agent: AgentName) -> str:
    """How an agent's program is had, where it is missing."""
    try:
        find_program(agent, os.environ)
    except SmartForkError as error:
        return error.hint
    return ""


def _none_fits(best: Hit, results: Sequence[Hit], floor: float, unread: str) -> NotFound:
    barred = next((hit for hit in results if hit.score >= floor and not hit.can_fork), None)
    why = f" {barred.session_id} fits but cannot be forked: {barred.warning}." if barred else ""
    otherwise = _missing(barred.agent_type) if barred else ""
    return NotFound(
        joined(
            f"Nothing was forked: the best score of a session that can be forked is {in_words(best.score)}, below "
            f"{floor:.2f}.{why}",
            unread,
        ),
        otherwise
        or advice(
            'To fork one of them anyway, name it: smart-fork fork ID "…". --min-score sets another limit, 0 none.',
            tool="To fork one of the results anyway, give fork_index or fork_session_id. min_score sets another "
            "limit, 0 none. agent_type 'all' searches all agents.",
        ),
    )
