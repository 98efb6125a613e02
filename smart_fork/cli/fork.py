"""``fork``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexer.shapes import dataclass
from smart_fork.agents.options import Options, said
from smart_fork.agents.references import Resolved
from smart_fork.budget.wanted import MATCH, BudgetAsked, Wanted
from smart_fork.caller import caller_session
from smart_fork.cli.agents import CwdOption, HandedOption
from smart_fork.cli.command import Command
from smart_fork.cli.forked import print_forked
from smart_fork.cli.options import takes_options
from smart_fork.cli.output import printed_as_json, say
from smart_fork.cli.progress import progress_bar, starting
from smart_fork.errors import Usage
from smart_fork.forking.request import ForkRequest
from smart_fork.retrieval.team_search import sessions_here
from smart_fork.team.workers import is_shared

if TYPE_CHECKING:
    from smart_fork.forking.spending import Spending
    from smart_fork.forking.started import Forked

_PROTECTED = "smart_fork.protected"


class ForkCommand(Command):
    """Remembers whether a word stands behind ``--``: then the last one is the prompt, whatever it looks like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        ctx.meta[_PROTECTED] = "--" in args[:-1]
        return super().parse_args(ctx, args)


#: Commands that are of a class of their own.
COMMAND_CLASSES = {"fork": ForkCommand}


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a fork leaves its session, and what is looked for."""

    at: str | None = said(help="Fork after this message, or `match`: after the best answer.")
    intent: str | None = said(help="Text for --at match, --budget and --top. Default: the prompt.")
    also: Sequence[str] | None = said(list[str], help="The same intent in other words. Repeatable, up to 8.")
    top: int | None = said(int, help="Fork the N best sessions of this project.")
    min_score: float | None = said(float, help="Lowest score for --top. Default: 0.3.")

    @property
    def at_match(self) -> bool:
        """Return whether it leaves after the best answer."""
        return self.at == MATCH

    def looked_for(self, prompt: str | None) -> str:
        """Return the intent, by default the prompt."""
        return (prompt if self.intent is None else self.intent) or ""

    def number(self) -> int | None:
        """Return the message number, if one was given.

        Raises:
            Usage: it is none.
        """
        at = None if self.at_match else self.at
        if at is not None and not (at.isascii() and at.isdigit()):
            why = "`smart-fork show ID` prints the numbers; `match` finds one."
            raise Usage(f"--at {at} is not a message number", why)
        return None if at is None else int(at)


_Worktree = Annotated[
    bool | None,
    typer.Option("--worktree/--no-worktree", "-w", help="Run in a new git worktree. Default for several forks."),
]


@takes_options(
    without=("skip_permissions",), worktree=_Worktree, order="worktree worktree_name with_changes place cwd name"
)
def fork(
    *,
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID... [PROMPT]", help="Session ids (8 characters or more), then the prompt."),
    ] = None,
    point: ForkPoint,
    as_agent: HandedOption = None,
    options: Options,
    cwd: CwdOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command and its cost. Start nothing.")] = False,
    budget: BudgetAsked,
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge several sessions into one fork, within --budget.")
    ] = False,
) -> None:
    """Run a fork of a session; the original stays untouched. Of several sessions, each in its own git worktree.

    A prompt that starts with a dash goes after "--":  smart-fork fork 70f1a07f -- "-Werror breaks the build, fix it"
    """
    if options.worktree is False and options.with_changes:
        raise Usage("--no-worktree goes with neither --worktree-name nor --with-changes")
    if point.min_score is not None and point.top is None:
        raise Usage("--min-score is only for --top", "A session given by id is forked with any score.")
    wanted = budget.wanted()
    given = list(words or ())
    alone = point.top is not None
    ids, prompt = ([], _prompt_alone(given)) if alone else _ids_and_prompt(given, protected=ctx.meta[_PROTECTED])
    asked = ForkRequest(
        ids[0] if ids else "",
        replace(options, prompt=prompt),
        merge=tuple(ids[1:]) if merge else (),
        cwd=str(cwd) if cwd else None,
        as_agent=as_agent,
        dry_run=dry_run,
        caller_session_id=caller_session(os.environ),
    )
    if merge:
        _check_merge(wanted, point)
        forked = _forked_merged(asked, point, wanted)
    elif alone or len(ids) > 1:
        if wanted is not None:
            raise Usage("--budget is for one session", "Fork each by itself, or --merge them into one.")
        from smart_fork.cli.fan_out import fork_several

        in_worktrees = options.worktree if options.worktree is not None else True
        with sessions_here(ids, keep=not dry_run) as meant:
            fork_several([one.session_id for one in meant], point, asked, in_worktrees=in_worktrees)
        return
    else:
        forked = _forked_one(asked, point, wanted)
    if not printed_as_json(forked):
        print_forked(forked, dry_run=dry_run)


def _check_merge(wanted: Wanted | None, point: ForkPoint) -> None:
    if wanted is None:
        raise Usage("--merge needs a budget", "Give a budget for all of them: --budget 40k.")
    if point.at is not None or point.top is not None:
        raise Usage("--merge goes with neither --at nor --top", "Name the sessions and an intent.")


def _forked_merged(asked: ForkRequest, point: ForkPoint, wanted: Wanted | None) -> Forked:
    from smart_fork.forking.merger import fork_merged

    with (
        sessions_here((asked.session, *asked.merge), keep=not asked.dry_run) as (first, *others),
        spending_on(wanted, point, asked) as spending,
    ):
        _warn((first, *others))
        merged = tuple(one.session_id for one in others)
        return fork_merged(replace(asked, session=first.session_id, merge=merged, budget=spending))


def _forked_one(asked: ForkRequest, point: ForkPoint, wanted: Wanted | None) -> Forked:
    from smart_fork.forking.launch import fork_session

    if not point.at_match and wanted is None and (point.intent is not None or point.also):
        given = "--also" if point.intent is None else "--intent"
        raise Usage(
            f"{given} is only for --at match, --budget and --top", "Without them, the prompt says what the fork does."
        )
    asked = replace(asked, at=point.number())
    with (
        sessions_here([asked.session], keep=not asked.dry_run) as (resolved,),
        spending_on(wanted, point, asked) as spending,
    ):
        _warn([resolved])
        within = None if wanted is None else spending
        asked = replace(asked, session=resolved.session_id, budget=within, preview=None if wanted else spending)
        if point.at_match and spending is not None and spending.library is not None:
            from smart_fork.forking.match import fork_at_match

            forked = fork_at_match(asked, spending.intent, spending.library, spending.also)
        else:
            with starting(asked.options.place, quiet=asked.dry_run):
                forked = fork_session(asked)
    return replace(forked, resolved=resolved.by)


@contextmanager
def spending_on(wanted: Wanted | None, point: ForkPoint, asked: ForkRequest) -> Iterator[Spending | None]:
    """The budget, and what it is to be spent on. Without one, what a match or the ways of a dry run are found by.

    Nothing where there is no index to ask: a dry run makes none.
    """
    from indexer.paths import index_db

    intent, also = point.looked_for(asked.options.prompt), tuple(point.also or ())
    if point.at_match and wanted is None and not intent.strip():
        raise Usage("--at match needs an intent", 'Give an intent: --intent "…", or a prompt.')
    if wanted is None and not point.at_match and not (asked.dry_run and intent.strip() and index_db().exists()):
        yield None
        return
    from smart_fork.forking.spending import Spending
    from smart_fork.retrieval.background import library

    told = progress_bar() if wanted or point.at_match else nullcontext()
    with told as progress, library(progress=progress) as known:
        known.expect(intent, also)  # while the session is read
        yield Spending(wanted or Wanted(MATCH), intent, also, known)


def _warn(sessions: Sequence[Resolved]) -> None:
    """Say what is not in copies of the team's sessions."""
    for warning in (warning for one in sessions for warning in one.warnings):
        say(warning)


def _ids_and_prompt(words: list[str], *, protected: bool) -> tuple[list[str], str | None]:
    """The last of several words is the prompt, unless it means a session and does not stand behind ``--``."""
    if not words:
        raise Usage("No session given", "`smart-fork find` and `smart-fork list` show their ids.")
    if len(words) == 1 or (not protected and _is_session(words[-1])):
        return words, None
    return words[:-1], words[-1]


def _is_session(word: str) -> bool:
    from smart_fork.agents.references import names_session

    if not names_session(word):  # as nearly every prompt
        return False
    from smart_fork.forking.fan_out import is_session

    return is_session(word) or is_shared(word)


def _prompt_alone(words: list[str]) -> str | None:
    if len(words) > 1:
        raise Usage("--top searches for sessions and takes no id", "Give only the prompt, in quotation marks.")
    return words[0] if words else None
