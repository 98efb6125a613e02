"""One prompt for several past sessions at once, each fork a worker in a worktree of its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from indexer.masking import mask
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork import sessions
from smart_fork.agents.references import names_session, reference
from smart_fork.errors import NotFound, SmartForkError, Usage, advice
from smart_fork.forking.floor import fitting
from smart_fork.forking.launch import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.started import FannedOut, Forked, NotForked
from smart_fork.repository import worktree
from smart_fork.retrieval.answer import Answer

log = logging.getLogger(__name__)

MOST = 10
#: How many are started at the same time; each start waits until the agent has written its first words.
AT_ONCE = 4
#: A name made from a prompt, and room for the number behind it.
NAME_WORDS, NAME_CHARACTERS = 4, worktree.MAX_NAME_CHARACTERS - 3


@dataclass(frozen=True, slots=True)
class Source:
    """A session to fork, at the end of what message `through` is part of, or at its own end.

    Where its `agent` is known, no other agent's session of that id is meant.
    """

    session_id: str
    through: str | None = None
    agent: AgentName | None = None


def fan_out(sources: Sequence[Source], like: ForkRequest, *, in_worktrees: bool | str) -> FannedOut:
    """Fork each of `sources`, which may name a session twice; all but the session is as `like` has it.

    All are tried without effect before the first is started. What fails afterwards stands in its place in `forks`, as
    `NotForked`, and does not keep the others from starting. Names are the one of the options and a number; so
    are worktrees, or with the name that `in_worktrees` gives them.

    Raises:
        SmartForkError: one of them cannot be forked; none was started.
    """
    if not 1 <= len(sources) <= MOST:
        raise Usage(f"Between 1 and {MOST} sessions can be forked together, not {len(sources)}")
    options = like.options
    if options.place == "here":
        raise Usage("Only one fork can replace this command", "Run them in tmux or as processes.")
    base = options.name or name_of(options.prompt)
    given = in_worktrees if isinstance(in_worktrees, str) else base
    folders = worktree.plain_name(given)[:NAME_CHARACTERS]
    asked = [
        replace(
            like,
            session=reference(source.agent, source.session_id) if source.agent else source.session_id,
            through=source.through,
            options=replace(options, name=f"{base}-{number}", worktree=f"{folders}-{number}" if in_worktrees else None),
        )
        for number, source in enumerate(sources, 1)
    ]
    tried = [_fork(replace(one, dry_run=True)) for one in asked]
    said = options.prompt or ""
    if like.dry_run:
        return FannedOut(said, tuple(tried))
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fork") as pool:
        forks = tuple(pool.map(_started_or_not, sources, asked))
    return FannedOut(said, forks)


def is_session(word: str) -> bool:
    """Whether `word` means a session, by id, by its beginning, or by a worker's id.

    Raises:
        Usage: it means several.
    """
    if not names_session(word):
        return False
    try:
        sessions.locate(word)
    except NotFound:
        return False
    return True


def best_of(
    answer: Answer, most: int, *, min_score: float | None = None, at_match: bool = False
) -> tuple[list[Source], int]:
    """The best results of a search that can be forked and fit, `most` of them at most; and how many fit too little.

    Raises:
        Usage: so many are never forked at once.
        IndexUnavailable: nothing could be searched.
        NotFound: nothing that can be forked was found, or nothing that fits.
    """
    if not 1 <= most <= MOST:
        raise Usage(f"Between 1 and {MOST} sessions can be forked together, not {most}")
    fit = fitting(answer, most, min_score)
    hits = [hit for _, hit in fit.hits]
    ends = [hit.match.message_id if at_match or hit.match.lost else None for hit in hits]
    sources = [Source(hit.session_id, end, hit.agent_type) for hit, end in zip(hits, ends, strict=True)]
    return sources, fit.left_out


def name_of(prompt: str | None) -> str:
    """A name for workers that were given none: the first words of what they are to do."""
    words = mask(prompt or "").split(maxsplit=NAME_WORDS)[:NAME_WORDS]
    return worktree.plain_name(" ".join(words).lower())[:NAME_CHARACTERS].strip("-._") or "fork"


def _started_or_not(source: Source, request: ForkRequest) -> Forked | NotForked:
    def failed(error: str, hint: str) -> NotForked:
        return NotForked(resume_session_id=source.session_id, session_name=request.options.name, error=error, hint=hint)

    try:
        return _fork(request)
    except SmartForkError as error:
        return failed(error.message, error.hint)
    except Exception as error:  # the others must not be lost with it
        log.exception("a fork failed")
        hint = advice("`smart-fork doctor` checks what forks need.", tool="Run the result's fork_command yourself.")
        return failed(f"The fork failed: {error}", hint)


def _fork(request: ForkRequest) -> Forked:
    return fork_session(request)
