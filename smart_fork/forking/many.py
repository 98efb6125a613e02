"""One prompt for several past sessions at once, each fork a worker in a worktree of its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from indexer.masking import mask
from smart_fork.agents.references import reference
from smart_fork.errors import SmartForkError, Usage
from smart_fork.finding.answer import Answer
from smart_fork.forking.plan import Fork
from smart_fork.forking.recommendation import fitting, recommended
from smart_fork.forking.report import unexpected
from smart_fork.forking.request import Best, ForkRequest
from smart_fork.forking.started import FannedOut, Forked, NotForked
from smart_fork.repository import worktree

if TYPE_CHECKING:
    from smart_fork.finding.library import Opening

log = logging.getLogger(__name__)

MOST = 10
#: How many are started at the same time; each start waits until the agent has written its first words.
AT_ONCE = 4
#: A name made from a prompt, and room for the number behind it.
NAME_WORDS, NAME_CHARACTERS = 4, worktree.MAX_NAME_CHARACTERS - 3


def fan_out(asked: Sequence[ForkRequest], *, in_worktrees: bool | str, library: Opening | None = None) -> FannedOut:
    """Fork as each of `asked` says; two may name the same session.

    All are planned before the first is started. What fails afterwards stands in its place in `forks`, as `NotForked`,
    and does not keep the others from starting. Names are the one of the options and a number; so are worktrees, or
    with the name that `in_worktrees` gives them.

    Raises:
        SmartForkError: one of them cannot be forked; none was started.
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
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fork") as pool:
            return FannedOut(options.prompt or "", tuple(pool.map(_started_or_not, plans)))


def _check_number(number: int) -> None:
    if not 1 <= number <= MOST:
        raise Usage(f"Between 1 and {MOST} sessions can be forked together, not {number}")


def best_of(answer: Answer, like: ForkRequest, best: Best) -> tuple[list[ForkRequest], int]:
    """Return forks as `like` of the best results of a search that can be forked and fit; and how many fit too little.

    Raises:
        Usage: so many are never forked at once.
        IndexUnavailable: nothing could be searched.
        NotFound: nothing that can be forked was found, or nothing that fits.
    """
    number = best.top or 0
    _check_number(number)
    fit, left_out = fitting(answer, number, best.min_score)
    asked = (replace(like, session=reference(hit.agent_type, hit.session_id)) for hit in fit)
    return [recommended(hit, one, best.min_score) for hit, one in zip(fit, asked, strict=True)], left_out


def name_of(prompt: str | None) -> str:
    """A name for workers that were given none: the first words of what they are to do."""
    words = mask(prompt or "").split(maxsplit=NAME_WORDS)[:NAME_WORDS]
    return worktree.plain_name(" ".join(words).lower())[:NAME_CHARACTERS].strip("-._") or "fork"


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
