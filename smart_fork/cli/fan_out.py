"""``fork`` of several sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import typer

from indexer.changes import Progress
from indexer.values import json_of
from smart_fork import sessions
from smart_fork.cli.fork import ForkPoint
from smart_fork.cli.forked import print_forked
from smart_fork.cli.found import print_hits
from smart_fork.cli.output import as_values, complain, out, plain, printed_as_json, say
from smart_fork.cli.progress import progress_bar, starting
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.forking.fan_out import MOST, Source, best_of, fan_out
from smart_fork.forking.floor import FLOOR
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.started import Forked, NotForked
from smart_fork.retrieval.answer import Answer, Found
from smart_fork.retrieval.request import FindRequest


def fork_several(ids: Sequence[str], point: ForkPoint, like: ForkRequest, *, in_worktrees: bool | str) -> None:
    """Fork them as `like` says, and say of each what became of it.

    Exits with 1 if one was not started, with 3 if none fits.

    Raises:
        SmartForkError: none was started.
    """
    looked_for = point.looked_for(like.options.prompt)
    _check(point, looked_for)
    with progress_bar() as progress:
        if point.top is None:
            sources, left_out = _named(ids, point, looked_for, progress), 0
        else:
            found = _found(point, looked_for, like, progress)
            sources, left_out = _best(found, point, point.top, like.options.prompt)
    with starting(like.options.place, quiet=like.dry_run):
        answer = fan_out(sources, like, in_worktrees=in_worktrees)
        answer = replace(answer, left_out=left_out)
    if not printed_as_json(answer):
        _print(answer.forks, dry_run=like.dry_run)
        if left_out:
            least = FLOOR if point.min_score is None else point.min_score
            say(f"note: {left_out} more were skipped: their scores are below {least:.2f}. --min-score 0 takes all.")
    if any(isinstance(one, NotForked) for one in answer.forks):
        raise typer.Exit(1)


def _check(point: ForkPoint, looked_for: str) -> None:
    if not (point.at is None or point.at_match):
        raise Usage("--at takes a message's number only for one session", "Use --at match, or fork them one by one.")
    searching = point.at_match or point.top is not None
    if searching and not looked_for.strip():
        raise Usage("--top and --at match need an intent", 'Give an intent: --intent "…", or a prompt.')
    if point.top is not None:
        from smart_fork.retrieval.request import check_score

        check_score(point.min_score)
    if (point.intent is not None or point.also) and not searching:
        given = "--also" if point.intent is None else "--intent"
        raise Usage(f"{given} is only for --at match and --top", "Without them, the prompt says what the forks do.")


def _best(found: Answer, point: ForkPoint, most: int, prompt: str | None) -> tuple[list[Source], int]:
    """The best of what was found; where none fits, that is said beside what was found."""
    try:
        return best_of(found, most, min_score=point.min_score, at_match=point.at_match)
    except NotFound as error:
        shown = found.results[:most] if isinstance(found, Found) else ()
        if not shown:
            raise
        told = {"prompt": prompt or "", "forks": [], "results": json_of(shown), **as_values(error)}
        if not printed_as_json(told):
            print_hits(shown)
        complain(error)
        raise typer.Exit(error.exit_code) from error


def _named(ids: Sequence[str], point: ForkPoint, looked_for: str, progress: Progress | None) -> list[Source]:
    located = [sessions.locate(one) for one in ids]
    if not point.at_match:
        return [Source(one.session_id, agent=one.agent) for one in located]
    from smart_fork.forking.match import message_for
    from smart_fork.retrieval.background import library

    with library(progress=progress) as known:
        return [
            Source(one.session_id, message_for(sessions.look_into(one), looked_for, known, point.also or ()), one.agent)
            for one in located
        ]


def _found(point: ForkPoint, looked_for: str, like: ForkRequest, progress: Progress | None) -> Answer:
    """More than are wanted, since some cannot be forked."""
    from smart_fork.retrieval.background import library

    request = FindRequest(
        looked_for,
        agent_type="all",
        limit=3 * MOST,
        include_snippets=False,
        works_in=like.cwd,
        as_agent=like.as_agent,
        also=point.also,
    )
    with library(like.cwd, progress) as known:
        return known.find(request)


def _print(forks: Sequence[Forked | NotForked], *, dry_run: bool) -> None:
    for one in forks:
        if isinstance(one, NotForked):
            message = f"{one.session_name}, a fork of {one.resume_session_id}: {one.error}"
            complain(SmartForkError(message, one.hint))
        else:
            print_forked(one, dry_run=dry_run)
    started = [one.worker_id for one in forks if isinstance(one, Forked) and one.worker_id]
    if started:
        out.print(plain(f"Compare them: smart-fork compare {' '.join(started)}"))
