"""``fork``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smart_fork.agents.options import Options
from smart_fork.agents.references import Resolved, here
from smart_fork.budget.wanted import BudgetAsked, Wanted
from smart_fork.caller import caller_session
from smart_fork.cli.agents import HandedOption
from smart_fork.cli.command import Command
from smart_fork.cli.forked import print_forked
from smart_fork.cli.options import takes_options
from smart_fork.cli.output import printed_as_json, say
from smart_fork.cli.progress import progress_bar, starting
from smart_fork.cli.search import AlsoOption
from smart_fork.errors import Usage
from smart_fork.forking.request import ForkRequest
from smart_fork.team.login import is_known as knows_a_team
from smart_fork.team.workers import is_shared, on_this_machine

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
    at: Annotated[
        str | None,
        typer.Option("--at", help="Fork after this message, or `match`: after the best answer."),
    ] = None,
    intent: Annotated[
        str | None,
        typer.Option("--intent", help="Text for --at match, --budget and --top. Default: the prompt."),
    ] = None,
    also: AlsoOption = None,
    top: Annotated[int | None, typer.Option("--top", help="Fork the N best sessions of this project.")] = None,
    min_score: Annotated[
        float | None,
        typer.Option("--min-score", help="Lowest score for --top. Default: 0.3."),
    ] = None,
    as_agent: HandedOption = None,
    options: Options,
    cwd: Annotated[Path | None, typer.Option("--cwd", help="Working directory. Default: the session's own.")] = None,
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
    if min_score is not None and top is None:
        raise Usage("--min-score is only for --top", "A session given by id is forked with any score.")
    wanted = budget.wanted()
    said = list(words or ())
    ids, prompt = _ids_and_prompt(said, protected=ctx.meta[_PROTECTED]) if top is None else ([], _prompt_alone(said))
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
        _check_merge(wanted, at, top)
        forked = _forked_merged(asked, intent, also or (), wanted)
    elif top is not None or len(ids) > 1:
        if wanted is not None:
            raise Usage("--budget is for one session", "Fork each by itself, or --merge them into one.")
        from smart_fork.cli.fan_out import Wanted, fork_several

        in_worktrees = options.worktree if options.worktree is not None else True
        with on_this_machine(ids, keep=not dry_run) as meant:
            several = Wanted(tuple(meant), prompt, at, intent, top, min_score, tuple(also or ()))
            fork_several(several, asked, in_worktrees=in_worktrees)
        return
    else:
        forked = _forked_one(asked, at, intent, also or (), wanted)
    if not printed_as_json(forked):
        print_forked(forked, dry_run=dry_run)


def _check_merge(wanted: Wanted | None, at: str | None, top: int | None) -> None:
    if wanted is None:
        raise Usage("--merge needs a budget", "Give a budget for all of them: --budget 40k.")
    if at is not None or top is not None:
        raise Usage("--merge goes with neither --at nor --top", "Name the sessions and an intent.")


def _forked_merged(asked: ForkRequest, intent: str | None, also: Sequence[str], wanted: Wanted | None) -> Forked:
    from smart_fork.forking.merger import fork_merged

    with ExitStack() as stack:
        ids = (asked.session, *asked.merge)
        first, *others = [stack.enter_context(_on_this_machine(one, dry_run=asked.dry_run)).session_id for one in ids]
        spending = stack.enter_context(spending_on(wanted, looked_for(asked, intent), also))
        return fork_merged(replace(asked, session=first, merge=tuple(others), budget=spending))


def _forked_one(
    asked: ForkRequest, at: str | None, intent: str | None, also: Sequence[str], wanted: Wanted | None
) -> Forked:
    from smart_fork.forking.launch import fork_session

    if at != "match" and wanted is None and (intent is not None or also):
        given = "--also" if intent is None else "--intent"
        raise Usage(
            f"{given} is only for --at match, --budget and --top", "Without them, the prompt says what the fork does."
        )
    asked = replace(asked, at=message_number(at) if at != "match" else None)
    with (
        _on_this_machine(asked.session, dry_run=asked.dry_run) as resolved,
        spending_on(wanted, looked_for(asked, intent), also) as spending,
    ):
        asked = replace(asked, session=resolved.session_id, budget=spending)
        if asked.dry_run and spending is None:
            asked = replace(asked, preview=_preview(looked_for(asked, intent), also))
        if at == "match":
            forked = _forked_at_match(asked, looked_for(asked, intent), also)
        else:
            with starting(asked.options.place, quiet=asked.dry_run):
                forked = fork_session(asked)
    return replace(forked, resolved=resolved.by)


def looked_for(asked: ForkRequest, intent: str | None) -> str:
    """What a session is to answer: the intent, by default the prompt."""
    return (asked.options.prompt if intent is None else intent) or ""


@contextmanager
def spending_on(wanted: Wanted | None, intent: str, also: Sequence[str]) -> Iterator[Spending | None]:
    """The budget, and what it is to be spent on."""
    if wanted is None:
        yield None
        return
    from smart_fork.forking.spending import Spending
    from smart_fork.retrieval.background import engine
    from smart_fork.retrieval.meaning import meaning_of

    with progress_bar() as progress:
        own = engine(progress)
        with meaning_of(intent, also, own.embedder) as meaning:  # while the session is read
            yield Spending(wanted, intent, tuple(also), own, meaning)


def _preview(intent: str, also: Sequence[str]) -> Spending | None:
    """What the ways to fork are compared by; nothing where there is no index to ask, for a dry run makes none."""
    from indexer.paths import index_db

    if not intent.strip() or not index_db().exists():
        return None
    from smart_fork.budget.amount import MATCH
    from smart_fork.forking.spending import Spending
    from smart_fork.retrieval.background import engine

    return Spending(Wanted(MATCH), intent, tuple(also), engine(None))


@contextmanager
def _on_this_machine(session: str, *, dry_run: bool) -> Iterator[Resolved]:
    """The session; one of the team's is written here first, and taken away again after a dry run or a failure."""
    if not knows_a_team():
        yield here(session)
        return
    from smart_fork.team.take import found_or_taken

    with found_or_taken(session, keep=not dry_run) as (resolved, taken):
        for warning in taken.warnings if taken else ():
            say(warning)
        yield resolved


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


def _forked_at_match(asked: ForkRequest, intent: str, also: Sequence[str]) -> Forked:
    from smart_fork.forking.match import fork_at_match
    from smart_fork.retrieval.background import engine

    if not intent.strip():
        raise Usage("--at match needs an intent", 'Give an intent: --intent "…", or a prompt.')
    with progress_bar() as progress:
        return fork_at_match(asked, intent, engine(progress), also)


def message_number(at: str | None) -> int | None:
    """The number that `--at` was given, if any.

    Raises:
        Usage: it is none.
    """
    if at is None:
        return None
    if not (at.isascii() and at.isdigit()):
        raise Usage(f"--at {at} is not a message number", "`smart-fork show ID` prints the numbers; `match` finds one.")
    return int(at)
