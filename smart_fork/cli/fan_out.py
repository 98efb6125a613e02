"""``fork`` of several sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import typer

from indexer.changes import Progress
from indexer.shapes import dataclass
from indexer.values import json_of
from smart_fork import sessions
from smart_fork.cli.forked import print_forked
from smart_fork.cli.output import as_values, complain, out, plain, printed_as_json, say
from smart_fork.cli.progress import progress_bar, starting
from smart_fork.cli.search import print_hits
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.forking.fan_out import MOST, Source, best_of, fan_out
from smart_fork.forking.floor import FLOOR
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.started import Forked, NotForked
from smart_fork.retrieval.answer import Answer, Found
from smart_fork.retrieval.request import FindRequest


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions, and what of them: `ids`, or the `top` ones of a search; `at` what answers `intent`.

    `also` says the intent in other words.
    """

    ids: tuple[str, ...]
    prompt: str | None
    at: str | None
    intent: str | None
    top: int | None
    min_score: float | None = None
    also: tuple[str, ...] = ()

    @property
    def looked_for(self) -> str:
        """What is searched."""
        return (self.prompt if self.intent is None else self.intent) or ""


def fork_several(wanted: Wanted, like: ForkRequest, *, in_worktrees: bool | str) -> None:
    """Fork them as `like` says, and say of each what became of it.

    Exits with 1 if one was not started, with 3 if none fits.

    Raises:
        SmartForkError: none was started.
    """
    _check(wanted)
    with progress_bar() as progress:
        if wanted.top is None:
            sources, left_out = _named(wanted, progress), 0
        else:
            found = _found(wanted, like.cwd, progress)
            sources, left_out = _best(found, wanted, wanted.top)
    with starting(like.options.place, quiet=like.dry_run):
        answer = fan_out(sources, like, in_worktrees=in_worktrees)
        answer = replace(answer, left_out=left_out)
    if not printed_as_json(answer):
        _print(answer.forks, dry_run=like.dry_run)
        if left_out:
            least = FLOOR if wanted.min_score is None else wanted.min_score
            say(f"note: {left_out} more were skipped: their scores are below {least:.2f}. --min-score 0 takes all.")
    if any(isinstance(one, NotForked) for one in answer.forks):
        raise typer.Exit(1)


def _check(wanted: Wanted) -> None:
    if wanted.at not in (None, "match"):
        raise Usage("--at takes a message's number only for one session", "Use --at match, or fork them one by one.")
    searching = wanted.at == "match" or wanted.top is not None
    if searching and not wanted.looked_for.strip():
        raise Usage("--top and --at match need an intent", 'Give an intent: --intent "…", or a prompt.')
    if wanted.top is not None:
        from smart_fork.retrieval.request import check_score

        check_score(wanted.min_score)
    if (wanted.intent is not None or wanted.also) and not searching:
        given = "--also" if wanted.intent is None else "--intent"
        raise Usage(f"{given} is only for --at match and --top", "Without them, the prompt says what the forks do.")


def _best(found: Answer, wanted: Wanted, most: int) -> tuple[list[Source], int]:
    """The best of what was found; where none fits, that is said beside what was found."""
    try:
        return best_of(found, most, min_score=wanted.min_score, at_match=wanted.at == "match")
    except NotFound as error:
        shown = found.results[:most] if isinstance(found, Found) else ()
        if not shown:
            raise
        told = {"prompt": wanted.prompt or "", "forks": [], "results": json_of(shown), **as_values(error)}
        if not printed_as_json(told):
            print_hits(shown)
        complain(error)
        raise typer.Exit(error.exit_code) from error


def _named(wanted: Wanted, progress: Progress | None) -> list[Source]:
    located = [sessions.locate(one) for one in wanted.ids]
    if wanted.at != "match":
        return [Source(one.session_id, agent=one.agent) for one in located]
    from smart_fork.forking.match import message_for
    from smart_fork.retrieval.background import engine

    asked = engine(progress)
    return [
        Source(one.session_id, message_for(sessions.look_into(one), wanted.looked_for, asked, wanted.also), one.agent)
        for one in located
    ]


def _found(wanted: Wanted, project: str | None, progress: Progress | None) -> Answer:
    """More than are wanted, since some cannot be forked."""
    from smart_fork.retrieval.background import ask

    request = FindRequest(
        wanted.looked_for,
        agent_type="all",
        limit=3 * MOST,
        project_path=project,
        include_snippets=False,
        works_in=project,
        also=wanted.also,
    )
    return ask(request, progress)


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
