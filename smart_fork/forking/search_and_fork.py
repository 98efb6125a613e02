"""The main job in one call: find, choose, fork."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from indexer.changes import Progress
from indexer.transcripts.model import AgentName
from smart_fork.advice import advice
from smart_fork.agents.options import PLACES, Options
from smart_fork.agents.references import Resolved
from smart_fork.agents.references import here as of_this_machine
from smart_fork.agents.selection import named
from smart_fork.budget.amount import MATCH as LEAST
from smart_fork.budget.wanted import Wanted
from smart_fork.engines.configured import OWN
from smart_fork.errors import ForkRefused, IndexUnavailable, NotFound, SmartForkError, Usage
from smart_fork.forking.floor import FLOOR, fitting, none_can_be_forked
from smart_fork.forking.match import MATCH, message_for
from smart_fork.forking.spending import Spending
from smart_fork.forking.started import Forked
from smart_fork.forking.which import Ask, Later, about_as_likely
from smart_fork.given import refuse_both, refuse_empty
from smart_fork.retrieval.all_agents import find_in_all
from smart_fork.retrieval.answer import Answer, Found, Hit
from smart_fork.retrieval.finder import find
from smart_fork.retrieval.request import FindRequest, check
from smart_fork.retrieval.upkeep import Engine
from smart_fork.snippets import shown

log = logging.getLogger(__name__)


def find_and_fork(
    request: FindRequest,
    engine: Engine,
    *,
    caller_session_id: str | None = None,
    auto_fork: bool = False,
    fork_index: int | None = None,
    fork_session_id: str | None = None,
    options: Options | None = None,
    at: int | str | None = None,
    ask: Ask | None = None,
    or_all: bool = False,
    budget: Wanted | None = None,
    merge: Sequence[str] = (),
    as_agent: AgentName | None = None,
    dry_run: bool = False,
) -> Answer:
    """`find`, and the fork that was asked for as ``forked_session``; with `at` ``"match"`` where its passage ends.

    Within a `budget` the fork has what answers the request alone, with `merge` also what does in those sessions. With
    `as_agent` it is a session of that agent. A `dry_run` starts nothing: it says what the fork would be, and what each
    way to fork the session loads.

    With `auto_fork` alone the best result is forked if it fits: it scores the request's `min_score`, else `FLOOR`;
    where several fit about as well, the one that is chosen by whom `ask` asks. A fork that fails leaves the results in
    the answer, with ``error`` and ``hint`` beside them; so does one that is not tried because nothing fits or
    nobody has chosen, and the results then are all that were found. With `or_all` all agents' sessions are searched
    where those of the request's one do not fit, but not for `auto_fork`.

    Raises:
        Usage: something in the request is not acceptable; nothing was read or started.
        Later: `ask` has raised it.
    """
    check(request)
    _check(fork_index, fork_session_id, at, budget, merge)
    if as_agent is not None:
        named(as_agent)
    options = options or Options()
    if options.place is not None and options.place not in PLACES:
        raise Usage(f"run_in must be 'tmux', 'process', or 'iterm2', not {shown(options.place)}")
    unchosen = auto_fork and fork_index is None and not fork_session_id
    least = None if unchosen else request.min_score
    look = find_in_all if or_all and not unchosen else find
    answer = look(replace(request, min_score=least, works_in=request.project_path), engine)
    if not fork_session_id and (not isinstance(answer, Found) or not (auto_fork or fork_index is not None)):
        return answer
    try:
        told = engine.progress or (lambda *_: None)
        if unchosen:
            tried = partial(_check_startable, options=options, request=request, as_agent=as_agent, dry_run=dry_run)
            fork_session_id = _meant(_own(answer, engine), request.min_score, ask, told, tried)
            answer = _at_least(request.min_score, answer)
        results = answer.results if isinstance(answer, Found) else ()
        index, session_id = _chosen(results, fork_index, fork_session_id)
        hit = None if index is None else results[index]
        with ExitStack() as stack:
            named_ids = (session_id, *merge)
            taken = [stack.enter_context(_here(one, request, engine, keep=not dry_run)) for one in named_ids]
            here = taken[0]
            how: dict[str, Any] = {
                "cwd": request.project_path,  # it works in the project that was asked about
                "caller_session_id": caller_session_id,
            }
            how |= {"as_agent": as_agent} if as_agent else {}
            how |= {"dry_run": True} if dry_run else {}
            if not merge:
                how |= {"through": _through(hit, here.session_id, request, engine)} if at == MATCH else {"at": at}
            asked = replace(options, prompt=options.prompt or request.intent)
            spent = Spending(budget or Wanted(LEAST), request.intent, request.also or (), engine)
            told("starting the fork", 0, 1)
            forked = _forked([one.session_id for one in taken], asked, spent, how, within=budget is not None)
    except Later:
        raise
    except SmartForkError as error:
        return replace(answer, error=error.message, hint=error.hint)
    except Exception as error:  # the results must not be lost with the fork
        log.exception("the fork failed")
        return replace(
            answer,
            error=f"The fork failed: {error}",
            hint=advice("`smart-fork doctor` checks what forks need.", tool="Run the result's fork_command yourself."),
        )
    answer = replace(answer, resolved=here.by)
    return replace(answer, forked_session=replace(forked, chosen={"forked_index": index}).as_json())


def _check(
    fork_index: int | None,
    fork_session_id: str | None,
    at: int | str | None,
    budget: Wanted | None,
    merge: Sequence[str],
) -> None:
    """Refuse what cannot be forked so, before anything is read."""
    given = {"fork_session_id": fork_session_id, "fork_index": fork_index}
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
    if merge and (budget is None or at is not None):
        raise Usage("merge needs a budget and goes without at", "Give a budget for all of them: budget '40k'.")


def _forked(
    session_ids: Sequence[str], options: Options, spent: Spending, how: dict[str, Any], *, within: bool
) -> Forked:
    """The fork of a session, `within` a budget where one was given, or of several in one."""
    if len(session_ids) > 1:
        from smart_fork.forking.merger import fork_merged

        return fork_merged(session_ids, options, spent, **how)
    from smart_fork.forking.launch import fork_session

    if within:
        how |= {"budget": spent}
    elif "dry_run" in how:
        how |= {"preview": spent}
    return fork_session(session_ids[0], options, **how)


def _own(answer: Answer, engine: Engine) -> Answer:
    """What may be forked without being chosen: a teammate's session only where the person has settled that."""
    if not isinstance(answer, Found) or engine.elsewhere is None or engine.elsewhere.auto_fork:
        return answer
    return replace(answer, results=tuple(hit for hit in answer.results if hit.origin is None))


@contextmanager
def _here(session_id: str, request: FindRequest, engine: Engine, *, keep: bool) -> Iterator[Resolved]:
    """The session as one of this machine: a teammate's is written here, and goes again where nothing is started."""
    if engine.elsewhere is None:
        yield of_this_machine(session_id)
        return
    with engine.elsewhere.taken(session_id, Path(request.project_path or Path.cwd()), keep=keep) as here:
        yield here


def _through(hit: Hit | None, session_id: str, request: FindRequest, engine: Engine) -> str:
    """The message by which all is known; where that cannot be told, the one of the result's passage."""
    from smart_fork import sessions

    found = hit.match.message_id if hit is not None else None
    try:
        return message_for(sessions.look_into(sessions.locate(session_id)), request.intent, engine, request.also)
    except (NotFound, IndexUnavailable):
        if hit is None or found is None or hit.score < FLOOR:
            raise
        return found


def _check_startable(
    hit: Hit, *, options: Options, request: FindRequest, as_agent: AgentName | None, dry_run: bool
) -> None:
    """Refuse what could not be started. A teammate's session is not here yet."""
    from smart_fork.forking.launch import check_startable

    if hit.origin is None:
        asked = replace(options, prompt=options.prompt or request.intent)
        check_startable(hit.session_id, asked, cwd=request.project_path, as_agent=as_agent, dry_run=dry_run)


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


def _meant(
    answer: Answer, min_score: float | None, ask: Ask | None, told: Progress, check: Callable[[Hit], None]
) -> str:
    """The session that is forked: the best one that fits, or the one that is chosen where several are about as likely.

    These share the chance that one of them is meant, so each alone may be below the floor. What another engine has
    scored is no chance: there nobody is asked. What would refuse the fork is tried before.
    """
    if ask is not None and isinstance(answer, Found) and answer.engine == OWN:
        least = 0.0 if min_score is None else min_score
        near = about_as_likely([hit for hit in answer.results if hit.can_fork and hit.score >= least])
        if len(near) > 1 and sum(hit.score for hit in near) >= FLOOR:
            able = _startable(near, check)
            told("waiting for a choice", 0, 1)
            return ask(able)
    return fitting(answer, 1, min_score).hits[0][1].session_id


def _at_least(min_score: float | None, answer: Answer) -> Answer:
    """`answer` as it would be had the search left out what is below `min_score`."""
    if not isinstance(answer, Found):
        return answer
    kept = tuple(hit for hit in answer.results if min_score is None or hit.score >= min_score)
    return replace(answer, results=kept, count=len(kept))


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
