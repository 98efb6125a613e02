"""What a model should do next about an answer: it reads `next` before all else."""

from __future__ import annotations

from collections.abc import Sequence

from smart_fork.finding.answer import Answer, Unsearched
from smart_fork.finding.session_view import Hit
from smart_fork.workers.state import WorkerState

#: Which texts `also` is to be: said in the tools' parameters, and again where they were missing.
FURTHER = (
    "four further phrasings: as a developer types it; reworded; a short title; identifiers, files, error "
    'texts. One says what "this branch", "the PR" or "it" is (git status, git log -5, the issue). '
    "Use the sessions' language if it differs."
)


def after_search(answer: Answer) -> str:
    """What to do about an answer that is no good yet; empty where there is nothing."""
    if answer.hint:
        return answer.hint
    if isinstance(answer, Unsearched):
        return answer.next_steps[0]
    if answer.forked_session is not None or answer.search_mode == "recent" or not answer.query:
        return ""
    from smart_fork.agents import AGENTS
    from smart_fork.finding.query import unnamed
    from smart_fork.finding.ranking import FITS, LIKELY
    from smart_fork.finding.request import OWN
    from smart_fork.finding.session_view import score_in_words

    early = " ".join(filter(None, (answer.unread_notice, answer.early_notice, answer.background_notice)))
    again = f" {early} Ask again then." if early else ""
    narrow = answer.agent_type not in (AGENTS.ALL, AGENTS.word_for(AGENTS.readable())) and not answer.agents_notice
    other = f" Search all agents: agent_type '{AGENTS.ALL}'." if narrow else ""
    best = max((hit.score for hit in answer.results), default=0.0)
    shown = score_in_words(best)
    if not answer.index.sessions and not answer.results:
        return f"This project has no past session.{again or other or ' Work without one.'}"
    if best >= LIKELY or answer.engine != OWN:
        early = " ".join(filter(None, (answer.unread_notice, answer.early_notice)))
        return f"{early} {_cheaper(answer.results[0])}".strip() if answer.results else ""
    if not answer.also:
        again = f"Call this tool again with the same intent and `also`: {FURTHER}"
        return f"{unnamed(answer.query)}The best score is {shown}. {again}"
    if answer.unread_notice or (answer.early_notice and best < FITS):
        return f"{early} Ask again then, or read the best one before you rely on it."
    if answer.language_notice and best < FITS:
        return f"{answer.language_notice} No chance is known. Read the best one so far before you rely on it."
    if best < FITS:
        return f"None fits: the best score is {shown}. Fork none of them; work without one.{again or other}"
    return f"The best score is {shown}: read it before you rely on it, or work without.{again}"


def _cheaper(best: Hit) -> str:
    """How to fork the best one, if that takes much less than all of it, or if all of it would not know the match."""
    at, budget = best.suggested_at, best.suggested_budget
    if not best.can_fork or (at is None and budget is None):
        return ""
    there = "" if at is None else f"up to the answer {best.match.token_estimate or 0:,} tokens, "
    given = " and ".join(f"{name}={value}" for name, value in (("at", at), ("budget", budget)) if value is not None)
    whole = f"the whole session {best.token_estimate:,}{'' if there else ' tokens'}."
    return f"If you fork it, give {given}: {there}{whole}{f' {best.fork_note}.' if best.fork_note else ''}"


def about_workers(workers: Sequence[WorkerState], *, waited: bool = False, done: bool = True) -> str:
    """What to do about workers that ask something, have failed, or are not done yet."""
    steps = []
    if asking := ", ".join(str(one.worker_id) for one in workers if one.waiting_for):
        steps.append(
            f"{asking} needs an answer (waiting_for). Ask the user, then call message_worker with the option's "
            "number and answer: true."
        )
    if failed := ", ".join(str(one.worker_id) for one in workers if one.state == "failed"):
        steps.append(f"{failed} has failed. read_session shows its work; message_worker continues its session.")
    if waited and not done:
        steps.append("Time limit reached, and not all are done. Call wait_workers again.")
    return " ".join(steps)
