"""Search and fork in one call: find sessions and fork the chosen one, or several of the best with one prompt."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter

from indexer.errors import joined
from indexer.log_changes import Progress
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.programs import Program
from smart_fork.agents.references import Reference
from smart_fork.agents.request_fields import Options
from smart_fork.display_text import one_of, shown
from smart_fork.errors import ForkRefused, IndexUnavailable, NotFound, SmartForkError, Usage, advice, is_empty
from smart_fork.finding.answer import Answer, Found, RecentSession, Unsearched
from smart_fork.finding.fork_suitability import least_close
from smart_fork.finding.hit import Hit
from smart_fork.finding.ranking import LIKELY_SCORE, score_in_words
from smart_fork.finding.request import MAX_LIMIT, OWN, FindRequest
from smart_fork.finding.session_library import Library, Opening
from smart_fork.forking import plan
from smart_fork.forking.plan import Fork
from smart_fork.forking.request import (
    MAX_FORKS,
    NO_CHOICE,
    NO_FORK,
    AnswerPending,
    Ask,
    BestSessions,
    Budget,
    ForkRequest,
    SessionChoice,
    about_as_likely,
)
from smart_fork.forking.request import check as check_fork
from smart_fork.forking.results import FannedOut, Forked, NotForked
from smart_fork.forking.worker_spec import NAME_CHARACTERS, name_of, unexpected
from smart_fork.system.call_context import calling
from smart_fork.workers import worktree

log = logging.getLogger(__name__)

#: The arguments that choose the session to fork, and the agent.
_CHOICES = ("auto_fork", "fork_index", "fork_session_id", "as_agent")


def find_and_fork(
    request: FindRequest, library: Library, choice: SessionChoice = NO_CHOICE, fork: ForkRequest = NO_FORK
) -> Answer:
    """Search for sessions and fork the chosen one. The answer has the results, and the fork as ``forked_session``.

    If the fork fails or none is chosen, the answer has ``error`` and ``hint``. If a session fits but was not forked,
    ``next_steps`` has the tool calls that fork it.

    Raises:
        Usage: the request is invalid; nothing was read or started.
        AnswerPending: the user was asked to choose; the answer comes in a later request.
    """
    fork = replace(fork, merge=fork.merge or None)
    request = replace(_checked(request, choice, fork), works_in=library.path)
    answer = find_in_all(request, library.find) if choice.or_all else library.find(request)
    results = answer.results if isinstance(answer, Found) else ()
    unchosen = choice.auto_fork and choice.fork_index is None and not fork.session
    if not fork.session and not (isinstance(answer, Found) and (unchosen or choice.fork_index is not None)):
        return answer
    request = replace(request, intent=request.intent or fork.options.prompt or "")
    fork = _completed(fork, request, library)
    ask = partial(_ask, choice.ask, fork, library) if unchosen and choice.ask is not None else None
    near = _equals(answer, library) if ask else []
    try:
        if ask and near:
            fork = replace(fork, session=ask(near))
        elif unchosen:
            fork = replace(fork, session=_best(answer, request, choice, fork, library))
        index, session_id = _chosen(results, choice.fork_index, fork.session)
        fork = replace(fork, session=session_id)
        asked = fork if index is None else recommended(results[index], fork, request.min_score)
        if ask and not near and index is not None and _loads_much(results[index], asked):
            ask([results[index]])
        _telling(library)("starting the fork", 0, 1)
        forked = plan.fork_session(asked, lambda: nullcontext(library))
        resolved, forked = forked.resolved, replace(forked, chosen={"forked_index": index}, resolved="")
    except AnswerPending:
        raise
    except SmartForkError as error:
        steps = () if near else _calls(results, request, choice, fork)
        return replace(answer, error=error.message, hint=error.hint, next_steps=steps or answer.next_steps)
    except Exception as error:  # the results must not be lost with the fork
        log.exception("the fork failed")
        failed = unexpected(error)
        return replace(answer, error=failed.message, hint=failed.hint)
    steps = _calls(results, request, choice, fork) if unchosen else ()
    return replace(answer, resolved=resolved, next_steps=steps or answer.next_steps, forked_session=forked)


def _checked(request: FindRequest, choice: SessionChoice, fork: ForkRequest) -> FindRequest:
    """Return the search request with an intent, by default the fork's prompt. Refuse invalid requests."""
    prompt, place = fork.options.prompt, fork.options.place
    if (choice.auto_fork or choice.fork_index is not None or fork.session) and is_empty(request.intent):
        if not request.code:
            request = replace(request, intent=prompt or "")
        elif is_empty(prompt or ""):
            raise Usage("prompt is required", "Write what the fork is to do.")
    request.checked()
    given = {"fork_session_id": fork.session or None, "fork_index": choice.fork_index}
    Usage.refuse_empty(given)
    Usage.refuse_both(given, (("fork_session_id", "fork_index"),))
    if choice.fork_index is not None and choice.fork_index < 0:
        raise Usage(f"fork_index must be non-negative, not {choice.fork_index}", "It counts results from 0.")
    check_fork(fork)
    if place is not None and place not in Options.PLACES:
        raise Usage(f"run_in must be {one_of(Options.PLACES)}, not {shown(place)}")
    return replace(request, as_agent=fork.as_agent)


def _completed(fork: ForkRequest, request: FindRequest, library: Library) -> ForkRequest:
    """Return the fork request with the search request's directory, caller and intent, which is the default prompt."""
    return replace(
        fork, options=replace(fork.options, prompt=fork.options.prompt or request.intent), intent=request.intent,
        also=tuple(request.also or ()), cwd=request.works_in, caller_session_id=library.caller,
    )  # fmt: skip


def _telling(library: Library) -> Progress:
    return library.engine.progress or (lambda *_: None)


def _check_startable(hit: Hit, fork: ForkRequest) -> None:
    """Refuse a search result whose fork could not start. A teammate's session has no log yet: it is checked later."""
    if hit.origin is None:
        plan.check_startable(replace(fork, session=hit.session_id))


def _startable(hits: Sequence[Hit], fork: ForkRequest) -> list[Hit]:
    """Return the search results whose agent can be started. One result of each agent is checked.

    If no agent can be started, raise the first error.
    """
    refused: dict[AgentName, SmartForkError] = {}
    for agent in dict.fromkeys(hit.agent_type for hit in hits):
        try:
            _check_startable(next(hit for hit in hits if hit.agent_type == agent), fork)
        except SmartForkError as error:
            refused[agent] = error
    able = [hit for hit in hits if hit.agent_type not in refused]
    if not able:
        raise next(iter(refused.values()))
    return able


def _is_barred(hit: Hit, library: Library) -> bool:
    """Return True for a teammate's session that the settings do not allow to fork without asking the user."""
    return bool(hit.origin or hit.author) and not (library.elsewhere and library.elsewhere.auto_fork)


def _unasked(hit: Hit, request: FindRequest, fork: ForkRequest, library: Library, *, or_all: bool) -> str:
    """Return why this result is forked only if the user chooses it; empty if it needs no question."""
    if _is_barred(hit, library):
        return "it is a teammate's"
    if or_all and fork.as_agent is None and hit.agent_type != request.agent_type:
        return f"a fork of it starts {AGENTS.title_of(hit.agent_type)}, not {AGENTS.title_of(str(request.agent_type))}"
    return ""


def _equals(answer: Answer, library: Library) -> list[Hit]:
    """Return the results that score about as high as the best one; empty if no other does.

    Similar sessions share the probability that one of them is meant, so the score of each may be too low for a fork.
    Other search engines' scores are no probabilities.
    """
    if not isinstance(answer, Found) or answer.engine != OWN:
        return []
    near = about_as_likely([hit for hit in answer.results if hit.can_fork and not _is_barred(hit, library)])
    return near if len(near) > 1 and sum(hit.score for hit in near) >= LIKELY_SCORE else []


def _ask(ask: Ask, fork: ForkRequest, library: Library, hits: Sequence[Hit]) -> str:
    """Ask the user to choose one of those results whose agent can be started. Return the chosen session's id."""
    able = _startable(hits, fork)
    _telling(library)("waiting for a choice", 0, 1)
    return ask(able)


def _loads_much(hit: Hit, fork: ForkRequest) -> bool:
    """Return True if a fork of the result would load so many tokens that the user must be asked first."""
    tokens = hit.match.token_estimate or 0 if fork.at_match else hit.token_estimate if fork.at is None else 0
    return tokens > Hit.MUCH_TOKENS and fork.budget is None and not fork.dry_run


def _best(answer: Answer, request: FindRequest, choice: SessionChoice, fork: ForkRequest, library: Library) -> str:
    """Return the id of the best session (or of an about equal one) that needs no question; else raise `ForkRefused`."""
    best = about_as_likely(fitting(answer, MAX_LIMIT, request.min_score)[0])
    whys = {hit.session_id: _unasked(hit, request, fork, library, or_all=choice.or_all) for hit in best}
    if (meant := next((one for one, why in whys.items() if not why), None)) is not None:
        return meant
    raise ForkRefused(
        f"Nothing was forked: {best[0].session_id} fits best, but {whys[best[0].session_id]}",
        "next_steps has the calls that fork it.",
    )


def _passed_over(results: Sequence[Hit], request: FindRequest, choice: SessionChoice, fork: ForkRequest) -> Hit | None:
    """Return the result that was not forked, but fits: the one with the chosen index, or the best one."""
    if choice.fork_index is not None:
        return next(iter(results[choice.fork_index : choice.fork_index + 1]), None)
    floor = LIKELY_SCORE if request.min_score is None else request.min_score
    best = max(results, key=attrgetter("score"), default=None)
    forked = next((hit.score for hit in results if hit.session_id == fork.session), 0.0)
    return best if best is not None and best.score >= floor and forked < least_close(best.score) else None


def _calls(results: Sequence[Hit], request: FindRequest, choice: SessionChoice, fork: ForkRequest) -> tuple[str, ...]:
    """Return tool calls that fork the result that was not forked, but fits (see `_passed_over`).

    One call hands the session over to the caller's agent (as text), the other starts the session's own agent.
    """
    if (hit := _passed_over(results, request, choice, fork)) is None:
        return ()
    asks = calling.get()
    asks = asks if asks in AGENTS.handed_to() else AGENTS.first()
    given = {name: value for name, value in choice.call.items() if value is not None and name not in _CHOICES}
    given = {"intent": request.intent} | given | {"fork_session_id": hit.session_id}
    calls = []
    for what, agent in (
        (f"Hand it over to {AGENTS.title_of(asks)}", asks),
        (f"Start {AGENTS.title_of(hit.agent_type)}", None),
    ):
        if agent == hit.agent_type:
            continue
        with suppress(SmartForkError):
            _check_startable(hit, replace(fork, as_agent=agent))
            told = json.dumps(given | ({"as_agent": agent} if agent else {}), ensure_ascii=False)
            calls.append(f"{what}: smart_fork {told}")
    return tuple(calls)


def _chosen(results: Sequence[Hit], fork_index: int | None, session_id: str | None) -> tuple[int | None, str]:
    """Return (index in `results`, id) of the session chosen by id or index. The index is `None` if it is no result."""
    if session_id:
        return next((i for i, hit in enumerate(results) if hit.session_id == session_id), None), session_id
    if fork_index is None or not results:
        raise none_can_be_forked(results)
    if fork_index >= len(results):
        raise Usage("fork_index is out of range", f"There are {len(results)} results, counted from 0.")
    hit = results[fork_index]
    if not hit.can_fork:
        raise ForkRefused(f"Result {fork_index} cannot be forked: {hit.warning}", "Choose one with can_fork.")
    return fork_index, hit.session_id


# A question put to no agent by name: where the one asked first has nothing that fits, all of them are searched.


def find_in_all(request: FindRequest, find: Callable[[FindRequest], Answer]) -> Answer:
    """Search the sessions of the requested agent; if none fits, all agents' sessions, noted in ``agents_notice``."""
    if request.code:  # whoever wrote it is meant
        return find(replace(request, agent_type=AGENTS.ALL))
    own = find(request)
    if not isinstance(own, Found) or own.agent_type in (AGENTS.BOTH, AGENTS.ALL) or fits(own):
        return own
    widened = find(replace(request, agent_type=AGENTS.ALL))
    asked = own.agent_type
    others = {one.agent_type for one in _sessions(widened)} - {asked}
    none = f"No session of {AGENTS.title_of(asked)} fits"
    if not others or not isinstance(widened, Found):
        return replace(own, agents_notice=f"{none}; other agents' sessions were searched too")
    found = AGENTS.titles(sorted(others))
    starts = f"a fork of one of these starts {found}, not {AGENTS.title_of(asked)}"
    return replace(widened, agents_notice=f"{none}, so sessions of {found} were searched too: {starts}")


def fits(answer: Found) -> bool:
    """Return True if the session that the user means may be among the results.

    Scores are probabilities, which similar sessions share, so they are added up. Other search engines' results always
    count as fitting.
    """
    return bool(answer.results) and (answer.engine != OWN or sum(hit.score for hit in answer.results) >= LIKELY_SCORE)


def _sessions(answer: Answer) -> list[Hit | RecentSession]:
    return [*(answer.results if isinstance(answer, Found) else ()), *(answer.fallback_sessions or ())]


#: Concurrent starts. Each one waits until the agent has written its first words.
MAX_CONCURRENT_STARTS = 4


def fan_out(asked: Sequence[ForkRequest], *, in_worktrees: bool | str, library: Opening | None = None) -> FannedOut:
    """Fork each session in `asked`; one session may occur several times.

    All forks are planned before the first one starts. A fork that then fails becomes a `NotForked`; the others still
    start. Names of forks and worktrees are the requested name with a number. A text `in_worktrees` is the name for the
    worktrees.

    Raises:
        SmartForkError: a session cannot be forked; nothing was started.
    """
    _check_number(len(asked))
    options = asked[0].options
    if options.place == "here":
        raise Usage("Only one fork can replace this command", "Run them in tmux or as processes.")
    base = options.name or name_of(options.prompt)
    given = in_worktrees if isinstance(in_worktrees, str) else base
    folders = worktree.plain_name(given)[:NAME_CHARACTERS]
    plans = list[Fork]()
    with ExitStack() as undoing:
        for number, one in enumerate(asked, 1):
            own = f"{folders}-{number}" if in_worktrees else None
            numbered = replace(options, name=f"{base}-{number}", worktree=own)
            plans.append(Fork.plan(replace(one, options=numbered), library))
            undoing.callback(plans[-1].drop)
        if asked[0].dry_run:
            return FannedOut(options.prompt or "", tuple(replace(one.preview(), resolved="") for one in plans))
        with ThreadPoolExecutor(MAX_CONCURRENT_STARTS, thread_name_prefix="fork") as pool:
            return FannedOut(options.prompt or "", tuple(pool.map(_started_or_not, plans)))


def _check_number(number: int) -> None:
    if not 1 <= number <= MAX_FORKS:
        raise Usage(f"Between 1 and {MAX_FORKS} sessions can be forked together, not {number}")


def best_of(answer: Answer, like: ForkRequest, best: BestSessions) -> tuple[list[ForkRequest], int]:
    """Return fork requests like `like` for the best results that fit, and how many results score too low."""
    number = best.top or 0
    _check_number(number)
    fit, left_out = fitting(answer, number, best.min_score)
    asked = (replace(like, session=str(Reference(hit.agent_type, hit.session_id))) for hit in fit)
    return [recommended(hit, one, best.min_score) for hit, one in zip(fit, asked, strict=True)], left_out


def _started_or_not(planned: Fork) -> Forked | NotForked:
    try:
        return replace(planned.start(), resolved="")
    except SmartForkError as error:
        failed = error
    except Exception as error:  # the others must not be lost with it
        log.exception("a fork failed")
        failed = unexpected(error)
    session_id, name = planned.sessions[0].session_id, planned.request.options.name
    return NotForked(resume_session_id=session_id, session_name=name, error=failed.message, hint=failed.hint)


def fitting(answer: Answer, most: int, min_score: float | None) -> tuple[tuple[Hit, ...], int]:
    """Return up to `most` of the best forkable results with a high enough score, and how many score too low.

    Raises:
        IndexUnavailable: the index cannot be searched.
        NotFound: no result can be forked, or none fits.
    """
    if isinstance(answer, Unsearched):
        raise IndexUnavailable(answer.message, answer.next_steps[0])
    results = answer.results
    floor = LIKELY_SCORE if min_score is None else min_score
    able = [hit for hit in results if hit.can_fork]
    least = least_close(max((hit.score for hit in able), default=0.0))
    # Those that are about as likely share the chance of the one that is meant: whichever is forked, it fits.
    if min_score is None and sum(hit.score for hit in able if hit.score >= least) >= floor:
        floor = min(floor, least)
    fit = tuple(hit for hit in able if hit.score >= floor)[:most]
    if not results and min_score:
        raise NotFound(f"Nothing was forked: no session scores {min_score:g} or more", "min_score 0 sets no limit.")
    if not able:
        raise none_can_be_forked(results)
    if not fit:
        raise _none_fits(max(able, key=attrgetter("score")), results, floor, answer.unread_notice)
    return fit, len(able[:most]) - len(fit)


def recommended(hit: Hit, asked: ForkRequest, min_score: float | None = None) -> ForkRequest:
    """Return the fork request `asked`, completed for the search result `hit`.

    The whole session is forked, unless a compaction removed the matching passage from it. Then the fork ends at the
    match, with a budget if it would load very much, unless `asked` names a fork point or budget.
    """
    floor = LIKELY_SCORE if min_score is None else min_score
    asked = replace(asked, found=hit.match.message_id if hit.score >= floor else None)
    if not hit.match.lost or asked.at is not None or asked.budget or asked.merge or asked.as_agent:
        return asked
    budget = hit.suggested_budget
    wanted = Budget(Budget.parse_amount(budget)) if budget else None
    return replace(asked, at=hit.suggested_at, budget=wanted, notes=(hit.fork_note,))


def none_can_be_forked(results: Sequence[Hit]) -> NotFound:
    """Return the error that none of the results can be forked, with the first result's reason and the next step."""
    reason = f"The reason: {results[0].warning if results else 'nothing was found'}"
    if results and (install := _missing(results[0].agent_type)):
        return NotFound("No forkable sessions found", joined(reason, install))
    widen = advice(
        "Add other phrasings (--also). `smart-fork find` shows each session and its obstacle.",
        tool="Add other phrasings (also), set agent_type 'all', or drop min_score.",
    )
    return NotFound("No forkable sessions found", joined(reason, widen))


def _missing(agent: AgentName) -> str:
    """Return advice to install the program of an agent; empty if it is installed."""
    try:
        Program.find(agent, os.environ)
    except SmartForkError as error:
        return error.hint
    return ""


def _none_fits(best: Hit, results: Sequence[Hit], floor: float, unread: str) -> NotFound:
    barred = next((hit for hit in results if hit.score >= floor and not hit.can_fork), None)
    why = f" {barred.session_id} fits but cannot be forked: {barred.warning}." if barred else ""
    otherwise = _missing(barred.agent_type) if barred else ""
    return NotFound(
        joined(
            f"Nothing was forked: the best score of a session that can be forked is "
            f"{score_in_words(best.score)}, below {floor:.2f}.{why}",
            unread,
        ),
        otherwise
        or advice(
            'To fork one of them anyway, name it: smart-fork fork ID "…". --min-score sets another limit, 0 none.',
            tool="To fork one of the results anyway, give fork_index or fork_session_id. min_score sets another "
            "limit, 0 none. agent_type 'all' searches all agents.",
        ),
    )
