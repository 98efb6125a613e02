"""The main job in one call: find, choose, fork."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from operator import attrgetter

from indexer.changes import Progress
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.options import PLACES
from smart_fork.caller import calling_agent
from smart_fork.errors import ForkRefused, SmartForkError, Usage, is_empty
from smart_fork.finding.answer import Answer, Found, RecentSession
from smart_fork.finding.engine import OWN
from smart_fork.finding.hit import Hit
from smart_fork.finding.library import Library
from smart_fork.finding.ranking import FITS
from smart_fork.finding.request import MAX_LIMIT, FindRequest, check
from smart_fork.finding.worth import least_close
from smart_fork.forking import plan
from smart_fork.forking.recommendation import FLOOR, fitting, none_can_be_forked, recommended
from smart_fork.forking.report import unexpected
from smart_fork.forking.request import NO_CHOICE, NO_FORK, Choice, ForkRequest, Later, about_as_likely
from smart_fork.forking.request import check as check_fork
from smart_fork.snippets import shown

log = logging.getLogger(__name__)

#: The arguments that say which session is forked, and as whose.
_CHOICES = ("auto_fork", "fork_index", "fork_session_id", "as_agent")


def find_and_fork(
    request: FindRequest, library: Library, choice: Choice = NO_CHOICE, fork: ForkRequest = NO_FORK
) -> Answer:
    """`find`, and the `fork` that is asked for as ``forked_session``. The search is the same with and without it.

    A fork that fails leaves the results in the answer, with ``error`` and ``hint`` beside them. So does one that is not
    tried because nothing fits or nobody has chosen. ``next_steps`` has the calls that fork what was passed over.

    Raises:
        Usage: something in the request is not acceptable; nothing was read or started.
        Later: whoever was asked has raised it.
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
    near = _equals(answer, library) if unchosen and choice.ask is not None else []
    try:
        if choice.ask is not None and near:
            able = _startable(near, fork)
            _telling(library)("waiting for a choice", 0, 1)
            fork = replace(fork, session=choice.ask(able))
        elif unchosen:
            fork = replace(fork, session=_best(answer, request, choice, fork, library))
        index, session_id = _chosen(results, choice.fork_index, fork.session)
        fork = replace(fork, session=session_id)
        asked = fork if index is None else recommended(results[index], fork, request.min_score)
        _telling(library)("starting the fork", 0, 1)
        forked = plan.fork_session(asked, lambda: nullcontext(library))
        resolved, forked = forked.resolved, replace(forked, chosen={"forked_index": index}, resolved="")
    except Later:
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


def _checked(request: FindRequest, choice: Choice, fork: ForkRequest) -> FindRequest:
    """Return the request for the search. Refuse what cannot be forked, before anything is read."""
    prompt, place = fork.options.prompt, fork.options.place
    if (choice.auto_fork or choice.fork_index is not None or fork.session) and is_empty(request.intent):
        if not request.code:
            request = replace(request, intent=prompt or "")
        elif is_empty(prompt or ""):
            raise Usage("prompt is required", "Write what the fork is to do.")
    check(request)
    given = {"fork_session_id": fork.session or None, "fork_index": choice.fork_index}
    Usage.refuse_empty(given)
    Usage.refuse_both(given, (("fork_session_id", "fork_index"),))
    if choice.fork_index is not None and choice.fork_index < 0:
        raise Usage(f"fork_index must be non-negative, not {choice.fork_index}", "It counts results from 0.")
    check_fork(fork)
    if place is not None and place not in PLACES:
        raise Usage(f"run_in must be 'tmux', 'process', or 'iterm2', not {shown(place)}")
    return replace(request, as_agent=fork.as_agent)


def _completed(fork: ForkRequest, request: FindRequest, library: Library) -> ForkRequest:
    """The fork of what is searched for, in the project that was asked about. Its prompt is the intent unless given."""
    return replace(
        fork,
        options=replace(fork.options, prompt=fork.options.prompt or request.intent),
        intent=request.intent,
        also=tuple(request.also or ()),
        cwd=request.works_in,
        caller_session_id=library.caller,
    )


def _telling(library: Library) -> Progress:
    return library.engine.progress or (lambda *_: None)


def _check_startable(hit: Hit, fork: ForkRequest) -> None:
    """Refuse what could not be started. A teammate's session is not here yet."""
    if hit.origin is None:
        plan.check_startable(replace(fork, session=hit.session_id))


def _startable(hits: Sequence[Hit], fork: ForkRequest) -> list[Hit]:
    """Those whose agents could be started; each agent is tried once.

    Raises:
        SmartForkError: none could.
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
    """Tell if a session is a teammate's and the person has not allowed forks of these without a choice."""
    return bool(hit.origin or hit.author) and not (library.elsewhere and library.elsewhere.auto_fork)


def _unasked(hit: Hit, request: FindRequest, fork: ForkRequest, library: Library, *, or_all: bool) -> str:
    """Return why a session is forked only when it is chosen; empty if it may be forked as the best one."""
    if _is_barred(hit, library):
        return "it is a teammate's"
    if or_all and fork.as_agent is None and hit.agent_type != request.agent_type:
        return f"a fork of it starts {AGENTS.title_of(hit.agent_type)}, not {AGENTS.title_of(str(request.agent_type))}"
    return ""


def _equals(answer: Answer, library: Library) -> list[Hit]:
    """Return the results that are about as likely as the best one, if there are several to choose from.

    These share the chance that one of them is meant, so each alone may be below the floor. What another engine has
    scored is no chance.
    """
    if not isinstance(answer, Found) or answer.engine != OWN:
        return []
    near = about_as_likely([hit for hit in answer.results if hit.can_fork and not _is_barred(hit, library)])
    return near if len(near) > 1 and sum(hit.score for hit in near) >= FLOOR else []


def _best(answer: Answer, request: FindRequest, choice: Choice, fork: ForkRequest, library: Library) -> str:
    """Return the best session that fits, of about equally likely ones the first that may be forked unasked."""
    best = about_as_likely(fitting(answer, MAX_LIMIT, request.min_score)[0])
    whys = {hit.session_id: _unasked(hit, request, fork, library, or_all=choice.or_all) for hit in best}
    if (meant := next((one for one, why in whys.items() if not why), None)) is not None:
        return meant
    raise ForkRefused(
        f"Nothing was forked: {best[0].session_id} fits best, but {whys[best[0].session_id]}",
        "next_steps has the calls that fork it.",
    )


def _passed_over(results: Sequence[Hit], request: FindRequest, choice: Choice, fork: ForkRequest) -> Hit | None:
    """Return the result that was meant and is not forked: by its index, or the likeliest if it fits."""
    if choice.fork_index is not None:
        return next(iter(results[choice.fork_index : choice.fork_index + 1]), None)
    floor = FLOOR if request.min_score is None else request.min_score
    best = max(results, key=attrgetter("score"), default=None)
    forked = next((hit.score for hit in results if hit.session_id == fork.session), 0.0)
    return best if best is not None and best.score >= floor and forked < least_close(best.score) else None


def _calls(results: Sequence[Hit], request: FindRequest, choice: Choice, fork: ForkRequest) -> tuple[str, ...]:
    """Return the calls that fork what was passed over: handed over to the caller's agent, and by its own agent."""
    if (hit := _passed_over(results, request, choice, fork)) is None:
        return ()
    asks = calling_agent()
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
    """Which session was chosen: by its id, or by its index from 0."""
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
    """`find` for the one agent of the request; where nothing fits, for all of them, and ``agents_notice`` says so.

    Raises:
        Usage: see `find`.
    """
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
    """Whether the session that is meant may be among them: sessions that are alike share its chance.

    Another engine's scores are no chances.
    """
    return bool(answer.results) and (answer.engine != OWN or sum(hit.score for hit in answer.results) >= FITS)


def _sessions(answer: Answer) -> list[Hit | RecentSession]:
    return [*(answer.results if isinstance(answer, Found) else ()), *(answer.fallback_sessions or ())]
