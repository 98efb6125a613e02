"""``fork`` of several sessions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from indexer.values import json_of
from smart_fork.cli.forked import print_forked
from smart_fork.cli.found import print_hits
from smart_fork.cli.output import as_values, complain, out, plain, printed_as_json, say
from smart_fork.cli.progress import library_shown, starting
from smart_fork.errors import NotFound, SmartForkError
from smart_fork.finding.answer import Found
from smart_fork.forking.request import Best, ForkRequest
from smart_fork.forking.results import Forked, NotForked
from smart_fork.forking.search_and_fork import FLOOR, MOST, best_of, fan_out

if TYPE_CHECKING:
    from smart_fork.finding.library import Library


def fork_several(ids: Sequence[str], best: Best, like: ForkRequest, *, in_worktrees: bool | str) -> None:
    """Fork them, or the best that are found, as `like` says; and say of each what became of it.

    Exits with 1 if one was not started, with 3 if none fits.

    Raises:
        SmartForkError: none was started.
    """
    with library_shown(like.cwd) as library:
        asked, left_out = [replace(like, session=one) for one in ids], 0
        if best.top is not None:
            asked, left_out = _best(like, best, library)
        with starting(like.options.place, quiet=like.dry_run):
            answer = fan_out(asked, in_worktrees=in_worktrees, library=lambda: nullcontext(library))
    answer = replace(answer, left_out=left_out)
    if not printed_as_json(answer):
        _print(answer.forks, dry_run=like.dry_run)
        if left_out:
            least = FLOOR if best.min_score is None else best.min_score
            say(f"note: {left_out} more were skipped: their scores are below {least:.2f}. --min-score 0 takes all.")
    if any(isinstance(one, NotForked) for one in answer.forks):
        raise typer.Exit(1)


def _best(like: ForkRequest, best: Best, library: Library) -> tuple[list[ForkRequest], int]:
    """The best of what is found; where none fits, that is said beside what was found."""
    from smart_fork.finding.request import FindRequest, check_score

    check_score(best.min_score)
    request = FindRequest(
        like.looked_for,
        agent_type="all",
        limit=3 * MOST,  # more than are wanted, since some cannot be forked
        include_snippets=False,
        works_in=like.cwd,
        as_agent=like.as_agent,
        also=like.also,
    )
    found = library.find(request)
    try:
        return best_of(found, like, best)
    except NotFound as error:
        shown = found.results[: best.top] if isinstance(found, Found) else ()
        if not shown:
            raise
        told = {"prompt": like.options.prompt or "", "forks": [], "results": json_of(shown), **as_values(error)}
        if not printed_as_json(told):
            print_hits(shown)
        complain(error)
        raise typer.Exit(error.exit_code) from error


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
