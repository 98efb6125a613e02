"""The main job in one call: find, choose, fork."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter

from indexer.changes import Progress
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName
from smart_fork import sessions
from smart_fork.agents.facets import title_of
from smart_fork.agents.options import PLACES, Options
from smart_fork.agents.selection import first, handed_to, named
from smart_fork.budget.wanted import MATCH as LEAST
from smart_fork.budget.wanted import Wanted, amount
from smart_fork.caller import calling_agent
from smart_fork.engines.configured import OWN
from smart_fork.errors import ForkRefused, IndexUnavailable, NotFound, SmartForkError, Usage, advice
from smart_fork.forking.floor import FLOOR, fitting, none_can_be_forked
from smart_fork.forking.match import MATCH, message_for
from smart_fork.forking.request import ForkChoice, ForkRequest
from smart_fork.forking.spending import Spending
from smart_fork.forking.started import Forked
from smart_fork.forking.which import Later, about_as_likely
from smart_fork.retrieval.all_agents import find_in_all
from smart_fork.retrieval.answer import Answer, Found, Hit
from smart_fork.retrieval.library import Library
from smart_fork.retrieval.request import MAX_LIMIT, FindRequest, check
from smart_fork.retrieval.results import suggested_at, suggested_budget
from smart_fork.retrieval.worth import least_close
from smart_fork.text.given import is_empty, refuse_both, refuse_empty
from smart_fork.text.snippets import shown

log = logging.getLogger(__name__)

#: The arguments that say which session is forked, and as whose.
_CHOICES = ("auto_fork", "fork_index", "fork_session_id", "as_agent")


def find_and_fork(request: FindRequest, library: Library, choice: ForkChoice) -> Answer:
    """`find`, and the fork that `choice` asks for as ``forked_session``. The search is the same with and without it.

    A fork that fails leaves the results in the answer, with ``error`` and ``hint`` beside them. So does one that is not
    tried because nothing fits or nobody has chosen. ``next_steps`` has the calls that fork what was passed over.

    Raises:
        Usage: something in the request is not acceptable; nothing was read or started.
        Later: whoever was asked has raised it.
    """
    request = replace(_checked(request, choice), works_in=library.path)
    answer = find_in_all(request, library.find) if choice.or_all else library.find(request)
    results = answer.results if isinstance(answer, Found) else ()
    unchosen = choice.auto_fork and choice.fork_index is None and not choice.fork_session_id
    if not choice.fork_session_id and not (isinstance(answer, Found) and (unchosen or choice.fork_index is not None)):
        return answer
    request = replace(request, intent=request.intent or choice.options.prompt or "")
    near = _equals(answer, library) if unchosen and choice.ask is not None else []
    try:
        if choice.ask is not None and near:
            able = _startable(near, partial(_check_startable, request=request, choice=choice))
            _telling(library)("waiting for a choice", 0, 1)
            choice = replace(choice, fork_session_id=choice.ask(able))
        elif unchosen:
            choice = replace(choice, fork_session_id=_best(answer, request, choice, library))
        index, session_id = _chosen(results, choice.fork_index, choice.fork_session_id)
        with ExitStack() as stack:
            named_ids = (session_id, *choice.merge)
            here = stack.enter_context(library.sessions(named_ids, keep=not choice.dry_run))
            hit = None if index is None else results[index]
            notes, choice = _carrying(hit, choice)
            through = _through(hit, here[0].session_id, request, library) if choice.at == MATCH else None
            ids = [one.session_id for one in here]
            asked = _fork_request(ids, through, request, choice, library)
            _telling(library)("starting the fork", 0, 1)
            forked = _forked(asked)
            forked = replace(forked, warnings=(*notes, *forked.warnings))
    except Later:
        raise
    except SmartForkError as error:
        steps = () if near else _calls(results, request, choice)
        return replace(answer, error=error.message, hint=error.hint, next_steps=steps or answer.next_steps)
    except Exception as error:  # the results must not be lost with the fork
        log.exception("the fork failed")
        return replace(
            answer,
            error=f"The fork failed: {error}",
            hint=advice("`smart-fork doctor` checks what forks need.", tool="Run the result's fork_command yourself."),
        )
    steps = _calls(results, request, choice) if unchosen else ()
    forked = replace(forked, chosen={"forked_index": index})
    return replace(answer, resolved=here[0].by, next_steps=steps or answer.next_steps, forked_session=forked)


def _checked(request: FindRequest, choice: ForkChoice) -> FindRequest:
    """Return the request for the search. Refuse what cannot be forked, before anything is read."""
    prompt = choice.options.prompt
    forks = choice.auto_fork or choice.fork_index is not None or choice.fork_session_id is not None
    if forks and is_empty(request.intent):
        if not request.code:
            request = replace(request, intent=prompt or "")
        elif is_empty(prompt or ""):
            raise Usage("prompt is required", "Write what the fork is to do.")
    check(request)
    at, fork_index, place = choice.at, choice.fork_index, choice.options.place
    given = {"fork_session_id": choice.fork_session_id, "fork_index": fork_index}
    refuse_empty(given)
    refuse_both(given, (("fork_session_id", "fork_index"),))
    if fork_index is not None and fork_index < 0:
        raise Usage(f"fork_index must be non-negative, not {fork_index}", "It counts results from 0.")
    if isinstance(at, str) and at != MATCH:
        raise Usage(
            f"at must be a number or 'match', not {shown(at)}",
            "Use a message number, such as match.turn_index.",
        )
    if isinstance(at, int) and at < 0:
        raise Usage(f"at must be non-negative, not {at}", "Use a message number, such as match.turn_index.")
    if choice.merge and (choice.budget is None or at is not None):
        raise Usage("merge needs a budget and goes without at", "Give a budget for all of them: budget '40k'.")
    if choice.as_agent is not None:
        named(choice.as_agent)
    if place is not None and place not in PLACES:
        raise Usage(f"run_in must be 'tmux', 'process', or 'iterm2', not {shown(place)}")
    return replace(request, as_agent=choice.as_agent)


def _carrying(hit: Hit | None, choice: ForkChoice) -> tuple[tuple[str, ...], ForkChoice]:
    """Return the choice with the fork that is suggested where one of the whole session would not know the match.

    And why. What was chosen stays.
    """
    if hit is None or not hit.match.lost or choice.at is not None or choice.budget or choice.merge or choice.as_agent:
        return (), choice
    budget = suggested_budget(hit)
    return (hit.fork_note,), replace(choice, at=suggested_at(hit), budget=Wanted(amount(budget)) if budget else None)


def _fork_request(
    sessions: Sequence[str], through: str | None, request: FindRequest, choice: ForkChoice, library: Library
) -> ForkRequest:  # fmt: skip
    """The fork of the first of these sessions, with the others merged. It works in the project that was asked about."""
    spent = Spending(choice.budget or Wanted(LEAST), request.intent, request.also or (), library)
    return ForkRequest(
        sessions[0],
        _options(request, choice),
        at=choice.at if isinstance(choice.at, int) else None,
        through=through,
        merge=tuple(sessions[1:]),
        cwd=request.works_in,
        budget=spent if choice.budget is not None else None,
        as_agent=choice.as_agent or None,
        dry_run=choice.dry_run,
        preview=spent,
        caller_session_id=library.caller,
    )


def _options(request: FindRequest, choice: ForkChoice) -> Options:
    """What is said of the worker: its prompt is the intent where none is given."""
    return replace(choice.options, prompt=choice.options.prompt or request.intent)


def _forked(request: ForkRequest) -> Forked:
    """The fork of a session, or of several in one."""
    if request.merge:
        from smart_fork.forking.merger import fork_merged

        return fork_merged(request)
    from smart_fork.forking.launch import fork_session

    return fork_session(request)


def _telling(library: Library) -> Progress:
    return library.engine.progress or (lambda *_: None)


@bounded()
def _through(hit: Hit | None, session_id: str, request: FindRequest, library: Library) -> str:
    """The message by which all is known; where that cannot be told, the one of the result's passage."""
    found = hit.match.message_id if hit is not None else None
    try:
        return message_for(sessions.look_into(sessions.locate(session_id)), request.intent, library, request.also)
    except (NotFound, IndexUnavailable):
        if hit is None or found is None or hit.score < FLOOR:
            raise
        return found


def _check_startable(hit: Hit, request: FindRequest, choice: ForkChoice) -> None:
    """Refuse what could not be started. A teammate's session is not here yet."""
    from smart_fork.forking.launch import check_startable

    if hit.origin is None:
        check_startable(
            hit.session_id,
            _options(request, choice),
            cwd=request.works_in,
            as_agent=choice.as_agent,
            dry_run=choice.dry_run,
        )


def _startable(hits: Sequence[Hit], check: Callable[[Hit], None]) -> list[Hit]:
    """Those whose agents could be started; each agent is tried once.

    Raises:
        SmartForkError: none could.
    """
    refused: dict[AgentName, SmartForkError] = {}
    for agent in dict.fromkeys(hit.agent_type for hit in hits):
        try:
            check(next(hit for hit in hits if hit.agent_type == agent))
        except SmartForkError as error:
            refused[agent] = error
    able = [hit for hit in hits if hit.agent_type not in refused]
    if not able:
        raise next(iter(refused.values()))
    return able


def _is_barred(hit: Hit, library: Library) -> bool:
    """Tell if a session is a teammate's and the person has not allowed forks of these without a choice."""
    return bool(hit.origin or hit.author) and not (library.elsewhere and library.elsewhere.auto_fork)


def _unasked(hit: Hit, request: FindRequest, choice: ForkChoice, library: Library) -> str:
    """Return why a session is forked only when it is chosen; empty if it may be forked as the best one."""
    if _is_barred(hit, library):
        return "it is a teammate's"
    if choice.or_all and choice.as_agent is None and hit.agent_type != request.agent_type:
        return f"a fork of it starts {title_of(hit.agent_type)}, not {title_of(str(request.agent_type))}"
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


def _best(answer: Answer, request: FindRequest, choice: ForkChoice, library: Library) -> str:
    """Return the best session that fits, of about equally likely ones the first that may be forked unasked."""
    best = about_as_likely([hit for _, hit in fitting(answer, MAX_LIMIT, request.min_score).hits])
    whys = {hit.session_id: _unasked(hit, request, choice, library) for hit in best}
    if (meant := next((one for one, why in whys.items() if not why), None)) is not None:
        return meant
    raise ForkRefused(
        f"Nothing was forked: {best[0].session_id} fits best, but {whys[best[0].session_id]}",
        "next_steps has the calls that fork it.",
    )


def _passed_over(results: Sequence[Hit], request: FindRequest, choice: ForkChoice) -> Hit | None:
    """Return the result that was meant and is not forked: by its index, or the likeliest if it fits."""
    if choice.fork_index is not None:
        return next(iter(results[choice.fork_index : choice.fork_index + 1]), None)
    floor = FLOOR if request.min_score is None else request.min_score
    best = max(results, key=attrgetter("score"), default=None)
    forked = next((hit.score for hit in results if hit.session_id == choice.fork_session_id), 0.0)
    return best if best is not None and best.score >= floor and forked < least_close(best.score) else None


def _calls(results: Sequence[Hit], request: FindRequest, choice: ForkChoice) -> tuple[str, ...]:
    """Return the calls that fork what was passed over: handed over to the caller's agent, and by its own agent."""
    if (hit := _passed_over(results, request, choice)) is None:
        return ()
    asks = calling_agent()
    asks = asks if asks in handed_to() else first()
    given = {name: value for name, value in choice.call.items() if value is not None and name not in _CHOICES}
    given = {"intent": request.intent} | given | {"fork_session_id": hit.session_id}
    calls = []
    for what, agent in ((f"Hand it over to {title_of(asks)}", asks), (f"Start {title_of(hit.agent_type)}", None)):
        if agent == hit.agent_type:
            continue
        with suppress(SmartForkError):
            _check_startable(hit, request, replace(choice, as_agent=agent))
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
